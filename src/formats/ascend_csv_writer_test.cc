// SPDX-License-Identifier: Apache-2.0

#include "formats/ascend_csv_writer.h"

#include <algorithm>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/temporary_directory.h"
#include "formats/ascend_csv.h"

namespace gapless {
namespace {

// A matmul, a collective with its kernel, and an attention, on device 3.
CaptureTable small_table() {
  CaptureTable table;
  const auto id = [&](std::string_view text) { return table.names.intern(text); };
  table.append({.start_ns = 1'764'246'877'073'569'640,
                .duration_ns = 20'600,
                .device = 3,
                .stream = 148,
                .task = 7,
                .name = id("MatMulV2_1"),
                .type = id("MatMulV2"),
                .core = id("AI_CORE"),
                .input_shapes = id("16,5120;5120,768"),
                .output_shapes = id("16,768")});
  table.append({.start_ns = 1'764'246'877'073'590'240,
                .duration_ns = 81'100,
                .device = 3,
                .name = id("hcom_allReduce__503_0_1"),
                .type = id("hcom_allReduce_"),
                .core = id("COMMUNICATION"),
                .kind = KernelKind::kCollective});
  table.append({.start_ns = 1'764'246'877'073'590'260,
                .duration_ns = 81'060,
                .device = 3,
                .stream = 149,
                .task = 8,
                .name = id("AivKernel"),
                .type = id("hcom_allReduce_"),
                .core = id("COMMUNICATION"),
                .kind = KernelKind::kFragment});
  table.append({.start_ns = 1'764'246'877'073'680'000,
                .duration_ns = 6'540,
                .device = 3,
                .stream = 148,
                .task = 65535,
                .name = id("FusedInferAttentionScore_2"),
                .type = id("FusedInferAttentionScore"),
                .core = id("MIX_AIC"),
                .input_shapes = id("16,4,128;;"),
                .output_shapes = id("16,4,128;")});
  return table;
}

std::string written(const CaptureTable& table, const AscendWriteOptions& options) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("kernel_details.csv");
  const Result<uint64_t> bytes = write_ascend_csv(table, path, options);
  EXPECT_TRUE(bytes.has_value()) << (bytes ? "" : bytes.error().message);
  const Result<std::string> text = read_text_file(path);
  EXPECT_TRUE(text.has_value());
  EXPECT_EQ(*bytes, text->size());
  return *text;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return lines;
}

size_t column_count(std::string_view header) {
  return 1 + static_cast<size_t>(std::count(header.begin(), header.end(), ','));
}

TEST(AscendCsvWriter, WritesTheHeadersOfEveryYear) {
  const auto header = [](int number) { return ascend_header_text({.header = number}, true); };
  EXPECT_EQ(header(0),
            "Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim");
  EXPECT_EQ(header(1), "Step Id," + header(0));
  EXPECT_EQ(header(2), "Step Id,Device_id," + header(0));
  EXPECT_EQ(header(3),
            "Step Id,Device_id,Name,Type,Accelerator Core,Start Time(us),Duration(us),"
            "Wait Time(us),Block Num");
  EXPECT_EQ(header(4), header(3) +
                           ",Input Shapes,Input Data Types,Input Formats,Output Shapes,"
                           "Output Data Types,Output Formats");
  EXPECT_EQ(column_count(header(5)), 44u);
  EXPECT_EQ(column_count(header(6)), 45u);
  EXPECT_EQ(column_count(header(7)), 46u) << "as the samples of 2024";
  EXPECT_EQ(column_count(header(8)), 47u) << "as the samples of 2025";
  EXPECT_NE(header(9).find(",Block Num,Mix Block Num,"), std::string::npos);
  EXPECT_TRUE(header(10).starts_with("Step ID,Device_id,"));
  EXPECT_EQ(ascend_header_text({.header = 11}, false),
            "Device_id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,"
            "Start Time(us),Duration(us),Wait Time(us),Context ID");
  EXPECT_TRUE(header(12).starts_with("Model Name,Device_id,Model ID,Task ID,Stream ID,Infer ID,"));
  EXPECT_TRUE(ascend_header_text({.header = 2}, false).starts_with("Device_id,Name,"));
  EXPECT_EQ(ascend_header_text({.header = 0, .naming = AscendNaming::kOpSummary}, false),
            "Op Name,OP Type,Task Type,Task Start Time(us),Task Duration(us),Task Wait Time(us),"
            "Block Dim");
  EXPECT_EQ(ascend_header_text({.header = 0, .naming = AscendNaming::kMixed}, false),
            "Name,Type,Accelerator Core,Task Start Time(us),Duration(us),Wait Time(us),Block Dim");
}

TEST(AscendCsvWriter, WritesTheHeaderOfARealFile) {
  EXPECT_EQ(ascend_header_text({.header = 7}, false),
            "Step Id,Model ID,Task ID,Stream ID,Name,Type,OP State,Accelerator Core,"
            "Start Time(us),Duration(us),Wait Time(us),Block Dim,Mix Block Dim,HF32 Eligible,"
            "Input Shapes,Input Data Types,Input Formats,Output Shapes,Output Data Types,"
            "Output Formats,Context ID,aicore_time(us),aic_total_cycles,aic_mac_time(us),"
            "aic_mac_ratio,aic_scalar_time(us),aic_scalar_ratio,aic_mte1_time(us),aic_mte1_ratio,"
            "aic_mte2_time(us),aic_mte2_ratio,aic_fixpipe_time(us),aic_fixpipe_ratio,"
            "aic_icache_miss_rate,aiv_time(us),aiv_total_cycles,aiv_vec_time(us),aiv_vec_ratio,"
            "aiv_scalar_time(us),aiv_scalar_ratio,aiv_mte2_time(us),aiv_mte2_ratio,"
            "aiv_mte3_time(us),aiv_mte3_ratio,aiv_icache_miss_rate,cube_utilization(%)");
}

TEST(AscendCsvWriter, WritesCellsAsTheProfilerDoes) {
  const std::vector<std::string> lines =
      lines_of(written(small_table(), {.header = 9, .has_counters = false}));
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[1],
            "3,4294967295,7,148,MatMulV2_1,MatMulV2,dynamic,AI_CORE,1764246877073569.640\t,20.600,"
            "0,20,0,NO,\"\"\"16,5120;5120,768\"\"\",DT_BF16;DT_BF16,ND;ND,\"\"\"16,768\"\"\","
            "DT_BF16,ND,N/A\r");
  EXPECT_EQ(lines[2],
            "3,4294967295,N/A,N/A,hcom_allReduce__503_0_1,hcom_allReduce_,N/A,COMMUNICATION,"
            "1764246877073590.240\t,81.100,0.000000,0,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A,N/A\r");
  EXPECT_EQ(lines[4],
            "3,4294967295,65535,148,FusedInferAttentionScore_2,FusedInferAttentionScore,dynamic,"
            "MIX_AIC,1764246877073680.000\t,6.540,8.750000,20,40,NO,\"\"\"16,4,128;;\"\"\","
            "DT_BF16;DT_UNDEFINED;DT_UNDEFINED,ND;NULL;NULL,\"\"\"16,4,128;\"\"\","
            "DT_BF16;DT_UNDEFINED,ND;NULL,0\r")
      << "8.68 us are a wait of 8.75 on the grid of doubles";
}

TEST(AscendCsvWriter, HasCountersOnlyOfCoresThatCount) {
  const std::vector<std::string> lines = lines_of(written(small_table(), {.header = 9}));
  std::string missing;
  for (int i = 0; i < 25; ++i) missing += ",N/A";
  EXPECT_TRUE(lines[2].ends_with(missing + "\r"));
  EXPECT_TRUE(lines[3].ends_with(missing + "\r"));
  EXPECT_TRUE(lines[1].ends_with(",0.0,0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,95.517\r"))
      << "a matmul has none of the vector cores: " << lines[1];
  for (const std::string& line : lines) {
    // Quoted shapes have commas of their own.
    size_t count = 1;
    bool is_quoted = false;
    for (const char letter : line) {
      if (letter == '"') is_quoted = !is_quoted;
      count += letter == ',' && !is_quoted ? 1 : 0;
    }
    EXPECT_EQ(count, 46u) << line;
  }
}

TEST(AscendCsvWriter, WritesTheQuirksThatAreAskedFor) {
  const CaptureTable table = small_table();
  const std::string plain = written(table, {.header = 0,
                                            .has_types = false,
                                            .start_style = AscendStartStyle::kPlain,
                                            .trims_zeros = true,
                                            .carriage_returns = false,
                                            .byte_order_mark = true,
                                            .ends_with_line_break = false});
  EXPECT_EQ(plain,
            "\xef\xbb\xbfName,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),"
            "Block Dim\n"
            "MatMulV2_1,N/A,N/A,1764246877073569.640,20.6,0,0\n"
            "hcom_allReduce__503_0_1,N/A,COMMUNICATION,1764246877073590.240,81.1,0.000,0\n"
            "AivKernel,N/A,COMMUNICATION,1764246877073590.260,81.06,0.000,0\n"
            "FusedInferAttentionScore_2,N/A,N/A,1764246877073680.000,6.54,8.680,0");
  const std::string quoted = written(
      table, {.header = 4, .start_style = AscendStartStyle::kQuotedTab, .triple_quotes = false});
  EXPECT_NE(quoted.find(",\"1764246877073569.640\t\",20.600,"), std::string::npos);
  EXPECT_NE(quoted.find(",\"16,5120;5120,768\",DT_BF16"), std::string::npos);
}

TEST(AscendCsvWriter, WritesRowsInAnyOrderAndHeadersOnTheWay) {
  const std::vector<std::string> lines = lines_of(
      written(small_table(), {.header = 0, .rows = {3, 0, 3}, .headers_before = {0, 2, 2}}));
  ASSERT_EQ(lines.size(), 7u);
  EXPECT_EQ(lines[1], lines[0]);
  EXPECT_TRUE(lines[2].starts_with("FusedInfer"));
  EXPECT_TRUE(lines[3].starts_with("MatMulV2_1"));
  EXPECT_EQ(lines[4], lines[0]);
  EXPECT_EQ(lines[5], lines[0]);
  EXPECT_TRUE(lines[6].starts_with("FusedInfer"));
}

TEST(AscendCsvWriter, TakesColumnsOfOthers) {
  CaptureTable table = small_table();
  const uint32_t graph = table.names.intern("17");
  const uint32_t text = table.names.intern("a, \"b\"");
  const std::vector<std::string> lines =
      lines_of(written(table, {.header = 11,
                               .carriage_returns = false,
                               .extra_columns = {{"Model ID", {graph, kNoIndex, graph, graph}},
                                                 {"Note", {text, kNoIndex, text, text}}}}));
  EXPECT_TRUE(lines[0].ends_with(",Context ID,Note"));
  EXPECT_TRUE(lines[1].starts_with("3,17,7,148,"));
  EXPECT_TRUE(lines[1].ends_with(",N/A,\"a, \"\"b\"\"\""));
  EXPECT_TRUE(lines[2].starts_with("3,N/A,N/A,N/A,"));
}

TEST(AscendCsvWriter, QuotesNamesInKernelDetailsOnly) {
  CaptureTable table;
  table.append({.start_ns = 1000, .duration_ns = 20, .name = table.names.intern("a,b")});
  EXPECT_NE(written(table, {.header = 0}).find("\n\"a,b\",N/A"), std::string::npos);
  EXPECT_NE(written(table, {.header = 0, .naming = AscendNaming::kOpSummary}).find("\na,b,N/A"),
            std::string::npos);
}

TEST(AscendCsvWriter, CutsSlices) {
  const TemporaryDirectory directory;
  const Result<std::vector<std::string>> slices =
      write_ascend_slices(small_table(), directory.path("out"), {.headers_before = {3}}, 3);
  ASSERT_TRUE(slices.has_value());
  ASSERT_EQ(slices->size(), 2u);
  EXPECT_EQ(std::filesystem::path((*slices)[1]).filename().string().find("op_summary_slice_1_"),
            0u);
  EXPECT_EQ(lines_of(*read_text_file((*slices)[0])).size(), 4u);
  EXPECT_EQ(lines_of(*read_text_file((*slices)[1])).size(), 3u) << "a header, it again and a row";
  const Result<std::vector<std::string>> whole =
      write_ascend_slices(small_table(), directory.path("whole"));
  ASSERT_TRUE(whole.has_value());
  ASSERT_EQ(whole->size(), 1u);
  EXPECT_EQ((*whole)[0].find("slice"), std::string::npos);
}

TEST(AscendCsvWriter, RefusesWhatDoesNotFit) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("out.csv");
  const auto message = [&](const AscendWriteOptions& options) {
    const Result<uint64_t> bytes = write_ascend_csv(small_table(), path, options);
    return bytes ? std::string() : bytes.error().message;
  };
  EXPECT_EQ(message({.header = 13}), "header 13; 0 to 12 are possible");
  EXPECT_EQ(message({.rows = {4}}), "row 4 of a table with 4");
  EXPECT_EQ(message({.extra_columns = {{"Note", {}}}}), "column Note has 0 cells for 4 rows");
  EXPECT_FALSE(std::filesystem::exists(path));
  EXPECT_FALSE(write_ascend_csv(small_table(), directory.path("no/such/folder.csv"), {}));
}

// Goal: what is written is read back, in every header and style.
TEST(AscendCsvWriter, WritesWhatTheReaderReads) {
  const TemporaryDirectory directory;
  const CaptureTable table = small_table();
  for (int header = 0; header < kAscendHeaderCount; ++header) {
    for (const AscendNaming naming :
         {AscendNaming::kKernelDetails, AscendNaming::kOpSummary, AscendNaming::kMixed}) {
      const std::string path = directory.path("kernel_details.csv");
      const AscendWriteOptions options = {.header = header,
                                          .naming = naming,
                                          .start_style = static_cast<AscendStartStyle>(header % 3),
                                          .triple_quotes = header % 2 == 0,
                                          .carriage_returns = header % 2 == 1};
      ASSERT_TRUE(write_ascend_csv(table, path, options));
      const Result<CaptureTable> read = read_ascend_csv(std::vector<std::string>{path});
      ASSERT_TRUE(read.has_value()) << header << ": " << read.error().message;
      ASSERT_EQ(read->size(), table.size()) << header;
      EXPECT_EQ(read->start_ns, table.start_ns);
      EXPECT_EQ(read->duration_ns, table.duration_ns);
      EXPECT_EQ(read->kind, table.kind);
      if (header >= 5) {
        EXPECT_EQ(read->stream, table.stream);
        EXPECT_EQ(read->task, table.task);
      }
      const bool has_device = (header >= 2 && header <= 4) || header >= 8;
      if (has_device) {
        EXPECT_EQ(read->device, table.device);
      }
      for (size_t row = 0; row < table.size(); ++row) {
        EXPECT_EQ(read->names[read->name[row]], table.names[table.name[row]]);
        EXPECT_EQ(read->names[read->type[row]], table.names[table.type[row]]);
        const bool has_shapes = header >= 4 && header != 11;
        if (!has_shapes || table.input_shapes[row] == kNoIndex) {
          EXPECT_EQ(read->input_shapes[row], kNoIndex);
        } else {
          EXPECT_EQ(read->names[read->input_shapes[row]], table.names[table.input_shapes[row]]);
          EXPECT_EQ(read->names[read->output_shapes[row]], table.names[table.output_shapes[row]]);
        }
      }
    }
  }
}

TEST(AscendCsvWriter, MakesNothingUpOfWhatWasMeasured) {
  CaptureTable table = small_table();
  table.core.assign(table.size(), kNoIndex);
  const TemporaryDirectory directory;
  const std::string path = directory.path("measured.csv");
  ASSERT_TRUE(write_ascend_csv(table, path, {.has_counters = false, .makes_up_cells = false}));
  const std::string text = *read_text_file(path);
  EXPECT_EQ(text.find("DT_"), std::string::npos);
  EXPECT_EQ(text.find("dynamic"), std::string::npos);
  EXPECT_NE(text.find("16,5120;5120,768"), std::string::npos);
  const std::vector<std::string> paths = {path};
  const Result<CaptureTable> back = read_ascend_csv(paths);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->kind, table.kind) << "collectives are still known as such";
}

}  // namespace
}  // namespace gapless
