// SPDX-License-Identifier: Apache-2.0
//
// A program written for TraCR, unchanged but for its include: two stages of a pipeline, each on its
// own channel, with an arrow for every item that is handed over.

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <thread>

#include "gapless/tracr.h"

namespace {

constexpr uint16_t kProducer = 0;
constexpr uint16_t kConsumer = 1;
constexpr uint32_t kItems = 200;

void spin(int rounds) {
  volatile int sink = 0;
  for (int i = 0; i < rounds; ++i) sink = sink + i;
}

}  // namespace

int main() {
  INSTRUMENTATION_START();
  const uint16_t produce = INSTRUMENTATION_MARK_W_COLOR_ADD("produce", MARK_COLOR_RED);
  const uint16_t hand_over = INSTRUMENTATION_MARK_ADD("hand over");
  const uint16_t consume = INSTRUMENTATION_MARK_W_COLOR_ADD("consume", MARK_COLOR_TEAL);
  INSTRUMENTATION_ADD_CHANNEL_NAMES({"producer", "consumer"});

  std::atomic<uint32_t> made = 0;
  std::thread consumer([&] {
    INSTRUMENTATION_THREAD_INIT();
    for (uint32_t item = 0; item < kItems; ++item) {
      while (made.load() <= item) std::this_thread::yield();
      INSTRUMENTATION_MARK_SET(kConsumer, consume, item);
      INSTRUMENTATION_FLOW_END(kConsumer, item);
      spin(3000);
      INSTRUMENTATION_MARK_RESET(kConsumer);
    }
    INSTRUMENTATION_THREAD_FINALIZE();
  });
  for (uint32_t item = 0; item < kItems; ++item) {
    INSTRUMENTATION_MARK_SET(kProducer, produce, item);
    spin(4000);
    INSTRUMENTATION_MARK_SET(kProducer, hand_over, item);
    INSTRUMENTATION_FLOW_START(kProducer, item);
    made.store(item + 1);
  }
  INSTRUMENTATION_MARK_RESET(kProducer);
  consumer.join();
  INSTRUMENTATION_END();
  std::printf("tracr_pipeline: %u items\n", kItems);
  return 0;
}
