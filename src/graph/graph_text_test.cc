// SPDX-License-Identifier: Apache-2.0

#include "graph/graph_text.h"

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "graph/graph_builder.h"
#include "graph/random_graph.h"

namespace gapless {
namespace {

const int64_t kLength = 5;

// Three tasks on three buffers, with one of everything that is printed.
Graph make_small_graph() {
  GraphBuilder builder;
  const KernelId norm = builder.add_kernel("norm", nullptr).value();
  const KernelId unused = builder.add_kernel("unused", nullptr).value();
  EXPECT_EQ(unused.id, 1);
  const KernelId reduce = builder.add_kernel("all \"reduce\"\\\n", nullptr).value();
  const BufferId x =
      builder.add_buffer({.name = "x", .kind = BufferKind::kExternal, .bytes = 64}).value();
  const BufferId w =
      builder.add_buffer({.name = "w", .kind = BufferKind::kConstant, .bytes = 32}).value();
  builder.begin_scope();
  const BufferId y = builder.add_buffer({.bytes = 64}).value();
  const View rows = dense_view(y, DType::kF32, {4, 4});
  const View input = dense_view(x, DType::kF32, {16});
  const std::array<Argument, 3> first = {in(input), in(dense_view(w, DType::kS8, {32})),
                                         out(slice(rows, 0, 0, 2))};
  const std::array<Argument, 2> second = {in(input), out(slice(rows, 0, 2, 2))};
  const std::array<Argument, 2> third = {in(rows), inout(input)};
  const std::array<Scalar, 2> scalars = {Scalar::fixed(-4), Scalar::read_from(&kLength)};
  const TaskId zero = builder
                          .add_task({.kernel = norm,
                                     .arguments = first,
                                     .scalars = scalars,
                                     .cost = {.bytes = 96, .flops = 7}})
                          .value();
  EXPECT_TRUE(builder
                  .add_task({.kernel = norm,
                             .core = CoreKind::kVector,
                             .arguments = second,
                             .block_count = 3,
                             .after = {&zero, 1},
                             .predicate = {&kLength, Comparison::kGreaterEqual, -2},
                             .cost = {.bytes = 64}})
                  .has_value());
  EXPECT_TRUE(builder
                  .add_task({.kernel = reduce,
                             .core = CoreKind::kMixed,
                             .arguments = third,
                             .block_count = 2,
                             .gang = true})
                  .has_value());
  EXPECT_TRUE(builder.end_scope().has_value());
  Graph graph = builder.finish().value();
  EXPECT_TRUE(
      set_edges(graph,
                {{0, 1, EdgeKind::kOrder}, {0, 2, EdgeKind::kData}, {1, 2, EdgeKind::kLifetime}})
          .has_value());
  return graph;
}

TEST(GraphText, PrintsTotalsAndKernels) {
  EXPECT_EQ(graph_text(make_small_graph()),
            "3 tasks, 3 edges (1 data, 1 order, 1 lifetime), depth 3, width 1\n"
            "3 buffers: 1 external (64 bytes), 1 constant (32 bytes), 1 intermediate (64 bytes)\n"
            "kernel                tasks    blocks           bytes             flops\n"
            "norm                      2         4             160                 7\n"
            "all \"reduce\"\\\\x0a         1         2               0                 0\n");
}

TEST(GraphText, PrintsEveryTaskWhenAsked) {
  const Graph graph = make_small_graph();
  EXPECT_EQ(
      graph_text(graph, true).substr(graph_text(graph).size()),
      "0 norm on any: in x f32[16] strides [1] at 0, in w s8[32] strides [1] at 0, out buffer "
      "2 f32[2,4] strides [4,1] at 0\n"
      "1 norm on vector, 3 blocks, if value >= -2: in x f32[16] strides [1] at 0, out buffer 2 "
      "f32[2,4] strides [4,1] at 8; after 0 (order)\n"
      "2 all \"reduce\"\\\\x0a on mixed, a gang of 2 blocks: in buffer 2 f32[4,4] strides "
      "[4,1] at 0, inout x f32[16] strides [1] at 0; after 0 (data), 1 (lifetime)\n");
}

TEST(GraphText, SaysSoWhenThereIsACycle) {
  const Graph cycle = make_graph_of_edges(2, {{0, 1, EdgeKind::kData}, {1, 0, EdgeKind::kData}});
  EXPECT_EQ(graph_text(cycle).substr(0, 65),
            "2 tasks, 2 edges (2 data, 0 order, 0 lifetime), with a cycle\n0 bu");
}

TEST(GraphText, TakesAGraphWithoutTasks) {
  EXPECT_EQ(graph_text(make_graph_of_edges(0, {})),
            "0 tasks, 0 edges (0 data, 0 order, 0 lifetime), depth 0, width 0\n"
            "0 buffers: 0 external (0 bytes), 0 constant (0 bytes), 0 intermediate (0 bytes)\n"
            "kernel     tasks    blocks           bytes             flops\n");
}

TEST(GraphText, CountsDepthAndWidth) {
  // 0 -> {1, 2, 3} -> 4, and 5 alone, which lies as deep as 0.
  const Graph graph = make_graph_of_edges(6, {{0, 1, EdgeKind::kData},
                                              {0, 2, EdgeKind::kData},
                                              {0, 3, EdgeKind::kData},
                                              {1, 4, EdgeKind::kData},
                                              {2, 4, EdgeKind::kData},
                                              {3, 4, EdgeKind::kData}});
  EXPECT_NE(graph_text(graph).find("depth 3, width 3\n"), std::string::npos);
}

TEST(GraphDot, DrawsTasksAndEdges) {
  EXPECT_EQ(graph_dot(make_small_graph()),
            "digraph gapless {\n"
            "  node [shape=box];\n"
            "  t0 [label=\"0 norm\"];\n"
            "  t1 [label=\"1 norm\"];\n"
            "  t2 [label=\"2 all \\\"reduce\\\"\\\\\\\\x0a\"];\n"
            "  t0 -> t1 [style=dashed];\n"
            "  t0 -> t2 [style=solid];\n"
            "  t1 -> t2 [style=dotted];\n"
            "}\n");
}

using Json = nlohmann::json;

void expect_same_task(const Graph& graph, uint32_t task, const Json& json) {
  const GraphTask& facts = graph.tasks[task];
  EXPECT_EQ(json["kernel"], facts.kernel.id);
  EXPECT_EQ(json["core"], core_kind_name(facts.core));
  EXPECT_EQ(json["block_count"], facts.block_count);
  EXPECT_EQ(json["gang"], facts.gang);
  EXPECT_EQ(json["scope"], facts.scope);
  EXPECT_EQ(json["cost_bytes"], facts.cost.bytes);
  EXPECT_EQ(json["cost_flops"], facts.cost.flops);
  ASSERT_EQ(json["predicate"].is_null(), facts.predicate.value == nullptr);
  if (!json["predicate"].is_null()) {
    EXPECT_EQ(json["predicate"]["comparison"], comparison_text(facts.predicate.comparison));
    EXPECT_EQ(json["predicate"]["operand"], facts.predicate.operand);
  }
  ASSERT_EQ(json["arguments"].size(), graph.arguments_of(task).size());
  for (size_t i = 0; i < json["arguments"].size(); ++i) {
    const Json& argument = json["arguments"][i];
    const Argument& expected = graph.arguments_of(task)[i];
    EXPECT_EQ(argument["access"], access_name(expected.access));
    EXPECT_EQ(argument["buffer"], expected.view.buffer.index());
    EXPECT_EQ(argument["dtype"], dtype_name(expected.view.dtype));
    EXPECT_EQ(argument["offset"], expected.view.offset);
    ASSERT_EQ(argument["shape"].size(), expected.view.rank);
    ASSERT_EQ(argument["strides"].size(), expected.view.rank);
    for (size_t j = 0; j < expected.view.rank; ++j) {
      EXPECT_EQ(argument["shape"][j], expected.view.shape[j]);
      EXPECT_EQ(argument["strides"][j], expected.view.strides[j]);
    }
  }
  ASSERT_EQ(json["scalars"].size(), graph.scalars_of(task).size());
  for (size_t i = 0; i < json["scalars"].size(); ++i) {
    const Scalar& scalar = graph.scalars_of(task)[i];
    EXPECT_EQ(json["scalars"][i], scalar.is_fixed() ? Json(scalar.value()) : Json(nullptr));
  }
  ASSERT_EQ(json["after"].size(), graph.producers_of(task).size());
  for (size_t i = 0; i < json["after"].size(); ++i) {
    EXPECT_EQ(json["after"][i]["task"], graph.producers_of(task)[i].task);
    EXPECT_EQ(json["after"][i]["kind"], edge_kind_name(graph.producers_of(task)[i].kind));
  }
}

void expect_same(const Graph& graph, const Json& json) {
  ASSERT_EQ(json["kernels"].size(), graph.kernels.size());
  for (size_t i = 0; i < graph.kernels.size(); ++i) {
    EXPECT_EQ(json["kernels"][i], graph.kernels[KernelId{static_cast<uint16_t>(i)}].name);
  }
  ASSERT_EQ(json["buffers"].size(), graph.buffers.size());
  for (size_t i = 0; i < graph.buffers.size(); ++i) {
    const Json& buffer = json["buffers"][i];
    EXPECT_EQ(buffer["name"], graph.buffers[i].name);
    EXPECT_EQ(buffer["kind"], buffer_kind_name(graph.buffers[i].kind));
    EXPECT_EQ(buffer["bytes"], graph.buffers[i].bytes);
    EXPECT_EQ(buffer["scope"], graph.buffers[i].scope);
  }
  ASSERT_EQ(json["scopes"].size(), graph.scopes.size());
  for (size_t i = 0; i < graph.scopes.size(); ++i) {
    const Json& scope = json["scopes"][i];
    EXPECT_EQ(scope["parent"], graph.scopes[i].parent);
    EXPECT_EQ(scope["depth"], graph.scopes[i].depth);
    EXPECT_EQ(scope["first_task"], graph.scopes[i].first_task);
    EXPECT_EQ(scope["end_task"], graph.scopes[i].end_task);
  }
  ASSERT_EQ(json["tasks"].size(), graph.tasks.size());
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    SCOPED_TRACE(task);
    expect_same_task(graph, task, json["tasks"][task]);
  }
}

TEST(GraphJson, ReadsBackAsTheGraph) {
  const Graph graph = make_small_graph();
  const Json json = Json::parse(graph_json(graph));
  expect_same(graph, json);
  EXPECT_EQ(json["tasks"][0]["scalars"], Json::parse("[-4, null]"));
  EXPECT_EQ(json["tasks"][1]["predicate"], Json::parse(R"({"comparison": ">=", "operand": -2})"));
}

TEST(GraphJson, ReadsBackAsRandomPrograms) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    SCOPED_TRACE(seed);
    const Graph graph = make_random_graph(seed);
    expect_same(graph, Json::parse(graph_json(graph)));
  }
}

TEST(GraphJson, IsValidWhateverTheNamesAre) {
  Graph graph = make_graph_of_edges(1, {});
  graph.buffers.push_back({.name = "\xff\x01\"", .kind = BufferKind::kExternal});
  const Json json = Json::parse(graph_json(graph));
  EXPECT_EQ(json["buffers"][0]["name"], "\xef\xbf\xbd\x01\"");
}

}  // namespace
}  // namespace gapless
