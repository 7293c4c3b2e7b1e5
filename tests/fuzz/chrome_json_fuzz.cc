// SPDX-License-Identifier: Apache-2.0
//
// Any bytes must give a trace or a sentence, and a trace that was read can be written, and what was
// written can be read without a finding about its form.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include <fmt/core.h>
#include <unistd.h>

#include "base/check.h"
#include "formats/chrome_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace gapless;
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  const Result<Trace> trace = read_chrome_json(InputStream::from_memory(bytes, "fuzz.json"), {});
  if (!trace) {
    GAPLESS_CHECK(!trace.error().message.empty());
    return 0;
  }
  static const std::string path = fmt::format("/tmp/chrome_json_fuzz_{}.json", ::getpid());
  GAPLESS_CHECK(write_chrome_json(*trace, path, {}).has_value());
  Result<InputStream> written = InputStream::open_file(path);
  GAPLESS_CHECK(written.has_value());
  const Result<Trace> back = read_chrome_json(std::move(*written), {});
  ::unlink(path.c_str());
  GAPLESS_CHECK(back.has_value());
  for (const Finding& finding : back->findings) {
    GAPLESS_CHECK(finding.code != "damaged");
    GAPLESS_CHECK(finding.code != "cut-short");
  }
  return 0;
}
