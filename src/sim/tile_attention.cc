// SPDX-License-Identifier: Apache-2.0

#include "sim/tile_attention.h"

#include <string_view>
#include <vector>

namespace gapless {
namespace {

constexpr int64_t kMaxRows = 1 << 16;
constexpr int64_t kMaxPages = 1 << 16;
constexpr int64_t kMaxItems = 1 << 22;

}  // namespace

Result<SimGraph> make_tile_attention_graph(const TileAttentionArgs& args) {
  if (args.rows < 1 || args.rows > kMaxRows || args.pages < 1 || args.pages > kMaxPages ||
      args.rows * args.pages > kMaxItems) {
    return fail(ErrorCode::kInvalidInput, "{} rows of {} pages; there must be 1 to {} in all",
                args.rows, args.pages, kMaxItems);
  }
  SimGraphBuilder builder;
  const auto make_task = [&](std::string_view name, SimShape shape) {
    const SimCost cost = {.run_ns = args.run_ns, .sigma_ns = args.sigma_ns};
    return SimTask{
        .kernel = builder.add_kernel(name), .shape = shape, .cube = cost, .vector = cost};
  };
  const SimTask scores = make_task("qk", SimShape::kCube);
  const SimTask softmax = make_task("softmax", SimShape::kVector);
  const SimTask values = make_task("pv", SimShape::kCube);
  const SimTask update = make_task("update", SimShape::kVector);
  for (int64_t row = 0; row < args.rows; ++row) {
    std::vector<uint32_t> last;
    for (int64_t page = 0; page < args.pages; ++page) {
      std::vector<uint32_t> previous = {builder.add_task(scores)};
      previous = {builder.add_task(softmax, previous)};
      last.push_back(builder.add_task(values, previous));
      last = {builder.add_task(update, last)};
    }
  }
  return builder.finish();
}

}  // namespace gapless
