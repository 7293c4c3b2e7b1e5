// SPDX-License-Identifier: Apache-2.0
//
// The attention on a GPU against the formula in double, and what must be equal bit for bit. Without
// a GPU every test here is skipped and says so.

#include "cuda/attention.h"

#include <functional>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "cuda/attention_expect_test_support.h"
#include "cuda/attention_test_support.h"
#include "cuda/gpu_test_support.h"
#include "cuda/recorder.h"
#include "cuda/recorder_test_support.h"

namespace gapless::attention_test {
namespace {

TEST_F(CudaAttentionOnDevice, AgreesWithTheFormulaForEveryHeadDimAndGroup) {
  for (const DType dtype : kTypes) {
    for (const int head_dim : {64, 128, 256}) {
      for (const int group : {1, 2, 5, 8, 9, 16}) {
        const CudaBatchOptions options =
            options_of(dtype, 2, group, head_dim, 32, {1, 0, 700, 16, 511, 512, 513, 1500});
        expect_reference(options, name_of(options));
      }
    }
  }
}

TEST_F(CudaAttentionOnDevice, AgreesWithTheFormulaForEveryPageSize) {
  for (const DType dtype : kTypes) {
    for (const int page_tokens : {16, 48, 64, 128, 256}) {
      const CudaBatchOptions options =
          options_of(dtype, 8, 5, 128, page_tokens, {17, 129, 1023, 1, 2050, 300});
      expect_reference(options, name_of(options));
    }
  }
}

TEST_F(CudaAttentionOnDevice, AgreesWithTheFormulaForEveryChunkSizeAndRing) {
  for (const int slots : {1, 2, 3}) {
    for (const int chunk : {16, 64, 256, 512, 1024, 2048}) {
      CudaBatchOptions options = options_of(DType::kBf16, 2, 5, 128, 128, {1, 15, 600, 3000, 0});
      options.shape.chunk_tokens = chunk;
      options.tuning = {.ring_slots = slots};
      expect_reference(options,
                       "chunk " + std::to_string(chunk) + " slots " + std::to_string(slots));
    }
  }
}

TEST_F(CudaAttentionOnDevice, StoresTheTypeOfThePages) {
  for (const DType dtype : kTypes) {
    CudaBatchOptions options = options_of(dtype, 4, 5, 128, 128, {100, 0, 1700});
    options.shape.output_dtype = dtype;
    expect_reference(options, name_of(options));
  }
}

TEST_F(CudaAttentionOnDevice, TakesLongContexts) {
  expect_reference(options_of(DType::kBf16, 1, 5, 128, 128, {131072, 9000, 40000}), "long");
}

TEST_F(CudaAttentionOnDevice, TakesLargeBatches) {
  std::vector<int32_t> lengths;
  for (int i = 0; i < 256; ++i) lengths.push_back(i * 37 % 701);
  expect_reference(options_of(DType::kF16, 2, 4, 64, 16, lengths), "batch 256");
}

// Goal: large scores neither overflow nor lose the tokens before the largest one.
TEST_F(CudaAttentionOnDevice, KeepsLargeScoresApart) {
  CudaBatchOptions options = options_of(DType::kF16, 2, 5, 128, 64, {2000, 3, 800});
  options.q_deviation = 8.0f;
  expect_reference(options, "large scores");
}

// Tests that a sanitizer would not end are in parts, each a test of its own.
class CudaAttentionRepeatedOnDevice : public CudaAttentionOnDevice,
                                      public testing::WithParamInterface<int> {};
INSTANTIATE_TEST_SUITE_P(LengthsBy, CudaAttentionRepeatedOnDevice,
                         testing::Values(911, 1013, 1499, 2003), testing::PrintToStringParamName());

TEST_P(CudaAttentionRepeatedOnDevice, GivesTheSameBits) {
  std::vector<int32_t> lengths;
  for (int i = 0; i < 16; ++i) lengths.push_back(i * GetParam() % 4096);
  const CudaBatchOptions options = options_of(DType::kBf16, 8, 5, 128, 128, lengths);
  Result<CudaAttentionBatch> batch = CudaAttentionBatch::make(options);
  ASSERT_TRUE(batch) << batch.error().message;
  const Result<Bytes> first = batch->run();
  ASSERT_TRUE(first) << first.error().message;
  expect_written(options, *first);
  for (int repeat = 0; repeat < 6; ++repeat) {
    const Result<Bytes> again = batch->run_again(repeat % 2 == 1);
    ASSERT_TRUE(again) << again.error().message;
    ASSERT_EQ(*again, *first) << "repeat " << repeat;
  }
  expect_no_counts(*batch, "repeats");
}

// Goal: a sequence gives the same bits alone, and at any place of any batch.
TEST_F(CudaAttentionOnDevice, GivesTheSameBitsInEveryBatch) {
  for (const int32_t length : {1, 300, 512, 5000, 12345}) {
    const CudaBatchOptions alone_options = options_of(DType::kBf16, 2, 5, 128, 64, {length});
    Result<CudaAttentionBatch> alone = CudaAttentionBatch::make(alone_options);
    ASSERT_TRUE(alone) << alone.error().message;
    const Result<Bytes> expected = alone->run();
    ASSERT_TRUE(expected) << expected.error().message;
    expect_written(alone_options, *expected);

    CudaBatchOptions options =
        options_of(DType::kBf16, 2, 5, 128, 16, {700, 0, 3000, length, 64, 2100, 9999});
    options.seed = 7;
    Result<CudaAttentionBatch> batch = CudaAttentionBatch::make(options);
    ASSERT_TRUE(batch) << batch.error().message;
    batch->copy_sequence(*alone, 0, 3);
    ASSERT_TRUE(batch->fill_device());
    const Result<Bytes> output = batch->run();
    ASSERT_TRUE(output) << output.error().message;
    for (int head = 0; head < 2; ++head) {
      EXPECT_EQ(batch->output_bits(*output, 3, head), alone->output_bits(*expected, 0, head))
          << length << " tokens, head " << head;
    }
  }
}

TEST_F(CudaAttentionOnDevice, AgreesWithTheFormulaForRaggedLengths) {
  for (const uint32_t seed : {1u, 4u, 9u}) {
    expect_reference(ragged_options(seed, 8), "seed " + std::to_string(seed));
  }
}

class CudaAttentionCutOnDevice : public CudaAttentionOnDevice,
                                 public testing::WithParamInterface<std::tuple<uint32_t, int>> {};
INSTANTIATE_TEST_SUITE_P(Of, CudaAttentionCutOnDevice,
                         testing::Combine(testing::Values(1u, 2u, 3u),
                                          testing::Values(1, 4, 7, 30)),
                         [](const auto& test) {
                           return "Seed" + std::to_string(std::get<0>(test.param)) + "Pairs" +
                                  std::to_string(std::get<1>(test.param));
                         });

// Goal: where pairs are cut, who puts them together and when does not change a bit. What a pair
// counts as moves the cuts, and repeats change who is last.
TEST_P(CudaAttentionCutOnDevice, GivesTheSameBitsWhereverPairsAreCut) {
  const auto [seed, pair_tiles] = GetParam();
  CudaBatchOptions options = ragged_options(seed, 8);
  options.tuning.pair_tiles = 0;
  const Result<Bytes> expected = bits_of(options);
  ASSERT_TRUE(expected) << expected.error().message;
  options.tuning.pair_tiles = pair_tiles;
  expect_bits(options, *expected, "another cut");
}

struct PacedShape {
  int head_dim;
  double due_share;
};
class CudaAttentionPaceOnDevice : public CudaAttentionOnDevice,
                                  public testing::WithParamInterface<PacedShape> {};
INSTANTIATE_TEST_SUITE_P(
    Of, CudaAttentionPaceOnDevice,
    testing::Values(PacedShape{64, 0.3}, PacedShape{64, 0.9}, PacedShape{64, 1.5},
                    PacedShape{64, 1e6}, PacedShape{128, 0.3}, PacedShape{128, 0.9},
                    PacedShape{128, 1.5}, PacedShape{128, 1e6}, PacedShape{256, 0.3},
                    PacedShape{256, 0.9}, PacedShape{256, 1.5}, PacedShape{256, 1e6}),
    [](const auto& test) {
      const int percent = static_cast<int>(test.param.due_share * 100);
      return "Dim" + std::to_string(test.param.head_dim) + "Percent" + std::to_string(percent);
    });

// Goal: how many tiles are on their way does not change a bit: with warps that are late once, that
// are late all the time, and that are late here and there. A warp has far more tiles than its ring.
TEST_P(CudaAttentionPaceOnDevice, GivesTheSameBits) {
  CudaBatchOptions options = ragged_options(4, 32);
  options.shape.kv.head_dim = GetParam().head_dim;
  options.tuning.due_share = 1e-3;
  const Result<Bytes> expected = bits_of(options);
  ASSERT_TRUE(expected) << expected.error().message;
  options.tuning.due_share = GetParam().due_share;
  expect_bits(options, *expected, "another pace");
}

TEST_F(CudaAttentionOnDevice, GivesEverySequenceOfARaggedBatchTheBitsItHasAlone) {
  const CudaBatchOptions options = ragged_options(5, 3);
  Result<CudaAttentionBatch> batch = CudaAttentionBatch::make(options);
  ASSERT_TRUE(batch) << batch.error().message;
  const Result<Bytes> output = batch->run();
  ASSERT_TRUE(output) << output.error().message;
  for (int sequence = 0; sequence < 16; ++sequence) {
    expect_bits_alone(options, *batch, *output, sequence, "ragged");
  }
}

// Goal: what one launch left serves another, which does not look at the lengths any more.
TEST_F(CudaAttentionOnDevice, TakesTheScheduleOfAnEarlierLaunch) {
  const CudaBatchOptions options = ragged_options(4, 4);
  Result<CudaAttentionBatch> batch = CudaAttentionBatch::make(options);
  ASSERT_TRUE(batch) << batch.error().message;
  const Result<Bytes> expected = batch->run();
  ASSERT_TRUE(expected) << expected.error().message;
  expect_written(options, *expected);
  const Result<DeviceBuffer> schedules =
      DeviceBuffer::allocate(batch->attention().schedule_bytes(), "schedules");
  ASSERT_TRUE(schedules) << schedules.error().message;
  const Result<Bytes> first = batch->run_scheduled(*schedules, false);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(*first, *expected);
  ASSERT_TRUE(batch->forget_lengths());
  const Result<Bytes> second = batch->run_scheduled(*schedules, true);
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_EQ(*second, *expected);
  EXPECT_FALSE(batch->run_scheduled(DeviceBuffer(), true));
}

// Goal: a recorded launch computes the same, and every block of it leaves its phases, in order.
TEST_F(CudaAttentionOnDevice, RecordsWhatItsBlocksDo) {
  for (const int head_dim : {64, 128, 256}) {
    CudaBatchOptions options = ragged_options(4, 4);
    options.shape.kv.head_dim = head_dim;
    Result<CudaAttentionBatch> batch = CudaAttentionBatch::make(options);
    ASSERT_TRUE(batch) << batch.error().message;
    const Result<Bytes> expected = batch->run();
    ASSERT_TRUE(expected) << expected.error().message;
    const int blocks = batch->attention().blocks(batch->args());
    ASSERT_GT(blocks, 0);
    Result<AttentionRecords> recorded = AttentionRecords::make(blocks);
    ASSERT_TRUE(recorded) << recorded.error().message;
    const Result<Bytes> output = batch->run_recorded(recorded->launch());
    ASSERT_TRUE(output) << output.error().message;
    EXPECT_EQ(*output, *expected) << "head_dim " << head_dim;
    ASSERT_TRUE(recorded->read());
    for (int block = 0; block < blocks; ++block) {
      const DeviceBlockHeader header = recorded->header(block);
      EXPECT_EQ(header.step, 1u);
      EXPECT_GT(header.begin_ns, 0u);
      for (const uint32_t dropped : header.dropped) EXPECT_EQ(dropped, 0u) << "block " << block;
      const std::vector<DevicePhase> phases = recorded->phases(block, DeviceRole::kMain);
      ASSERT_GE(phases.size(), 4u) << "block " << block;
      EXPECT_EQ(phases[0], DevicePhase::kSetUp);
      EXPECT_EQ(phases[1], DevicePhase::kReadAhead);
      EXPECT_EQ(phases[2], DevicePhase::kWaitLaunch);
      EXPECT_EQ(phases.back(), DevicePhase::kEnd);
      EXPECT_EQ(recorded->phases(block, DeviceRole::kCombine).back(), DevicePhase::kEnd);
    }
  }
}

// Goal: the same with tasks, in two launches of which each is a step, also where blocks have none.
TEST_F(CudaAttentionOnDevice, RecordsItsBlocksAsTasks) {
  for (const int head_dim : {64, 128, 256}) {
    for (const bool is_short : {false, true}) {
      CudaBatchOptions options = ragged_options(4, 4);
      options.shape.kv.head_dim = head_dim;
      if (is_short) options.lengths = {0, 3, 0, 1};
      Result<CudaAttentionBatch> batch = CudaAttentionBatch::make(options);
      ASSERT_TRUE(batch) << batch.error().message;
      const Result<Bytes> expected = batch->run();
      ASSERT_TRUE(expected) << expected.error().message;
      const int blocks = batch->attention().blocks(batch->args());
      const Result<CudaRecorder> recorder =
          CudaRecorder::make({{.name = "attention", .blocks = blocks}}, 2, RecordLevel::kTasks);
      ASSERT_TRUE(recorder) << recorder.error().message;
      for (int step = 0; step < 2; ++step) {
        const Result<Bytes> output = batch->run_recorded(recorder->launch(0));
        ASSERT_TRUE(output) << output.error().message;
        EXPECT_EQ(*output, *expected) << "head_dim " << head_dim;
      }
      const Result<DeviceRecording> recording = recorder->read();
      ASSERT_TRUE(recording) << recording.error().message;
      EXPECT_EQ(recording->step_count, 2);
      EXPECT_GT(expect_data_in_order(*recording), 0);
      const Trace trace = device_trace(*recording);
      for (const Finding& finding : trace.findings) ADD_FAILURE() << finding.text;
      EXPECT_EQ(trace.tasks.size(), static_cast<size_t>(2 * blocks));
    }
  }
}

TEST_F(CudaAttentionOnDevice, FollowsLengthsThatChangeOnTheDevice) {
  CudaBatchOptions options = options_of(DType::kF16, 2, 5, 128, 128, {1400, 2600, 900});
  Result<CudaAttentionBatch> batch = CudaAttentionBatch::make(options);
  ASSERT_TRUE(batch) << batch.error().message;
  ASSERT_TRUE(batch->run());
  batch->lengths() = {1024, 513, 0};
  ASSERT_TRUE(batch->upload_lengths());
  const Result<Bytes> output = batch->run_again();
  ASSERT_TRUE(output) << output.error().message;
  for (int sequence = 0; sequence < 3; ++sequence) {
    expect_close(batch->output_of(*output, sequence, 1), batch->reference(sequence, 1),
                 tolerance(DType::kF16, DType::kF32), "sequence " + std::to_string(sequence));
  }
}

TEST_F(CudaAttentionOnDevice, SaysWhichNumbersOnTheDeviceAreWrong) {
  CudaBatchOptions options = options_of(DType::kBf16, 2, 5, 128, 128, {1400, 2600});
  options.workspace_bytes = 1 << 20;
  Result<CudaAttentionBatch> batch = CudaAttentionBatch::make(options);
  ASSERT_TRUE(batch) << batch.error().message;
  batch->lengths()[0] = 2700;
  ASSERT_TRUE(batch->upload_lengths());
  Result<Bytes> output = batch->run();
  ASSERT_FALSE(output);
  EXPECT_NE(output.error().message.find("above the 2600 tokens"), std::string::npos)
      << output.error().message;

  batch->lengths()[0] = 1400;
  batch->table()[3] = 1 << 20;
  ASSERT_TRUE(batch->upload_lengths());
  ASSERT_TRUE(batch->upload_table());
  output = batch->run();
  ASSERT_FALSE(output);
  EXPECT_NE(output.error().message.find("names a page that is none of the"), std::string::npos)
      << output.error().message;
}

TEST_F(CudaAttentionOnDevice, LeavesATooSmallWorkspaceAlone) {
  CudaBatchOptions options = options_of(DType::kBf16, 2, 5, 128, 128, {1400, 2600});
  options.shape.chunk_tokens = 512;
  options.workspace_bytes = 256 + 17 * (2688 + 4);  // 18 partials are needed
  Result<CudaAttentionBatch> batch = CudaAttentionBatch::make(options);
  ASSERT_TRUE(batch) << batch.error().message;
  const Result<Bytes> output = batch->run();
  ASSERT_FALSE(output);
  EXPECT_NE(output.error().message.find("more partials than the 17"), std::string::npos)
      << output.error().message;
}

// ---- Arguments.

using Args = CudaAttentionArgs;

std::string error_of(const Result<void>& result) { return result ? "" : result.error().message; }

// So many bytes further on; nobody reads what is there.
template <typename Pointer>
Pointer moved(Pointer pointer, uintptr_t bytes) {
  return reinterpret_cast<Pointer>(reinterpret_cast<uintptr_t>(pointer) + bytes);
}

class CudaAttentionArgumentsOnDevice : public CudaAttentionOnDevice {
 protected:
  void SetUp() override {
    CudaAttentionOnDevice::SetUp();
    if (IsSkipped()) return;
    Result<CudaAttentionBatch> made =
        CudaAttentionBatch::make(options_of(DType::kBf16, 2, 5, 128, 128, {100}));
    ASSERT_TRUE(made) << made.error().message;
    batch_.emplace(std::move(*made));
  }
  // What a launch with these arguments but for one change says.
  std::string refusal(const std::function<void(Args&)>& change) const {
    Args args = batch_->args();
    change(args);
    return error_of(batch_->attention().launch(args, nullptr));
  }

  std::optional<CudaAttentionBatch> batch_;
};

TEST_F(CudaAttentionArgumentsOnDevice, AreRefusedWithTheirNumbers) {
  EXPECT_EQ(refusal([](Args& args) { args.batch = 2; }),
            "a batch of 2 sequences; made for at most 1");
  EXPECT_EQ(refusal([](Args& args) { args.batch = -1; }),
            "a batch of -1 sequences; made for at most 1");
  EXPECT_EQ(refusal([](Args& args) { args.page_count = 0; }),
            "0 pages; 1 to 2147483647 are possible");
  EXPECT_EQ(refusal([](Args& args) { args.page_count = int64_t{1} << 31; }),
            "2147483648 pages; 1 to 2147483647 are possible");
  EXPECT_EQ(refusal([](Args& args) { args.page_table_stride = 0; }),
            "a page table of 0 entries a sequence");
  EXPECT_EQ(refusal([](Args& args) { args.workspace_bytes = 255; }),
            "a workspace of 255 bytes; at least 256 are needed");
  EXPECT_EQ(refusal([](Args& args) { args.scale = 0.0f; }),
            "scores times 0; a number other than 0 is needed");
  EXPECT_EQ(refusal([](Args& args) { args.scale = std::nanf(""); }),
            "scores times nan; a number other than 0 is needed");
  const Args args = batch_->args();
  EXPECT_EQ(error_of(batch_->attention().prepare(nullptr, 256, nullptr)),
            "attention without workspaces");
  EXPECT_EQ(error_of(batch_->attention().prepare(args.workspace, 255, nullptr)),
            "a workspace of 255 bytes; at least 256 are needed");
}

TEST_F(CudaAttentionArgumentsOnDevice, AreRefusedWhereTheyAreMissing) {
  EXPECT_EQ(refusal([](Args& args) { args.pages = nullptr; }), "attention without kv pages");
  EXPECT_EQ(refusal([](Args& args) { args.q = nullptr; }), "attention without queries");
  EXPECT_EQ(refusal([](Args& args) { args.output = nullptr; }), "attention without outputs");
  EXPECT_EQ(refusal([](Args& args) { args.workspace = nullptr; }), "attention without workspaces");
  EXPECT_EQ(refusal([](Args& args) { args.lengths = nullptr; }), "attention without lengths");
  EXPECT_EQ(refusal([](Args& args) { args.page_table = nullptr; }),
            "attention without page tables");
  EXPECT_EQ(refusal([](Args& args) { args.has_schedules = true; }), "attention without schedules");
}

TEST_F(CudaAttentionArgumentsOnDevice, AreRefusedWhereTheyLieBadly) {
  EXPECT_EQ(refusal([](Args& args) { args.pages = moved(args.pages, 8); }),
            "kv pages of an attention do not begin at a multiple of 16 bytes");
  EXPECT_EQ(refusal([](Args& args) { args.q = moved(args.q, 2); }),
            "queries of an attention do not begin at a multiple of 16 bytes");
  EXPECT_EQ(refusal([](Args& args) { args.output = moved(args.output, 4); }),
            "outputs of an attention do not begin at a multiple of 16 bytes");
  EXPECT_EQ(refusal([](Args& args) { args.workspace = moved(args.workspace, 128); }),
            "workspaces of an attention do not begin at a multiple of 256 bytes");
  EXPECT_EQ(refusal([](Args& args) { args.lengths = moved(args.lengths, 2); }),
            "lengths of an attention do not begin at a multiple of 4 bytes");
  EXPECT_EQ(refusal([](Args& args) { args.page_table = moved(args.page_table, 1); }),
            "page tables of an attention do not begin at a multiple of 4 bytes");
  EXPECT_EQ(refusal([](Args& args) { args.schedules = moved(args.workspace, 8); }),
            "schedules of an attention do not begin at a multiple of 16 bytes");
}

TEST_F(CudaAttentionArgumentsOnDevice, MayBeAnythingWhereThereIsNothingToDo) {
  EXPECT_EQ(refusal([](Args& args) { args = {}; }), "");
}

TEST_F(CudaAttentionOnDevice, SaysHowMuchMemoryWasNeeded) {
  const Result<DeviceBuffer> buffer = DeviceBuffer::allocate(int64_t{1} << 50, "kv pages");
  ASSERT_FALSE(buffer);
  EXPECT_NE(buffer.error().message.find("kv pages need 1125899906842624 bytes of GPU memory"),
            std::string::npos)
      << buffer.error().message;
}

}  // namespace
}  // namespace gapless::attention_test
