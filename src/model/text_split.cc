// SPDX-License-Identifier: Apache-2.0

#include "model/text_split.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/check.h"

namespace gapless {
namespace {

// Steps that one match may take: so many in any case, and so many more a byte, since a run of
// spaces of any length must be walked back and forth once. Patterns that nest repetitions stop
// here.
constexpr uint64_t kMatchSteps = 1'000'000;
constexpr uint64_t kMatchStepsPerByte = 16;

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatch {
  void operator()(pcre2_match_data* match) const { pcre2_match_data_free(match); }
};
struct FreeContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using Code = std::unique_ptr<pcre2_code, FreeCode>;
using MatchData = std::unique_ptr<pcre2_match_data, FreeMatch>;
using MatchContext = std::unique_ptr<pcre2_match_context, FreeContext>;

PCRE2_SPTR bytes_of(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

std::string error_text(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

// \s is White_Space to Oniguruma. To PCRE2 it also is U+180E, which is not.
std::string translate(std::string_view pattern) {
  std::string translated;
  for (size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '\\' || i + 1 == pattern.size()) {
      translated += pattern[i];
      continue;
    }
    const char letter = pattern[++i];
    if (letter == 's') {
      translated += "\\p{White_Space}";
    } else if (letter == 'S') {
      translated += "\\P{White_Space}";
    } else {
      translated += {'\\', letter};
    }
  }
  return translated;
}

// Where the first match at or after `from` lies.
struct Match {
  size_t begin;
  size_t end;
};

class Matcher {
 public:
  Matcher(const pcre2_code* code, std::string_view utf8)
      : code_(code),
        utf8_(utf8),
        data_(pcre2_match_data_create_from_pattern(code, nullptr)),
        context_(pcre2_match_context_create(nullptr)) {
    GAPLESS_CHECK(data_ != nullptr);
    GAPLESS_CHECK(context_ != nullptr);
    const uint64_t steps = kMatchSteps + kMatchStepsPerByte * utf8.size();
    const uint64_t limit = std::min<uint64_t>(steps, UINT32_MAX);
    pcre2_set_match_limit(context_.get(), static_cast<uint32_t>(limit));
  }

  // Nothing to the end: a match of no bytes there.
  Result<Match> find(size_t from) {
    // The whole text was checked to be UTF-8; PCRE2 would do it again for every word.
    constexpr uint32_t kOptions = PCRE2_NO_UTF_CHECK | PCRE2_NOTEMPTY;
    int status = run(from, kOptions);
    if (status == PCRE2_ERROR_JIT_STACKLIMIT) status = run(from, kOptions | PCRE2_NO_JIT);
    if (status == PCRE2_ERROR_NOMATCH) return Match{utf8_.size(), utf8_.size()};
    if (status < 0) {
      return fail(ErrorCode::kInvalidInput,
                  "the split pattern fails at byte {} of a text of {} bytes: {}", from,
                  utf8_.size(), error_text(status));
    }
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data_.get());
    // A \K that is called from a lookahead moves the start behind the end.
    if (ends[0] < from || ends[1] <= ends[0]) {
      return fail(ErrorCode::kInvalidInput, "the split pattern matches backwards at byte {}", from);
    }
    return Match{ends[0], ends[1]};
  }

 private:
  int run(size_t from, uint32_t options) {
    return pcre2_match(code_, bytes_of(utf8_), utf8_.size(), from, options, data_.get(),
                       context_.get());
  }

  const pcre2_code* code_;
  std::string_view utf8_;
  MatchData data_;
  MatchContext context_;
};

}  // namespace

struct TextSplit::Compiled {
  Code code;
};

TextSplit::TextSplit(std::unique_ptr<Compiled> compiled) : compiled_(std::move(compiled)) {}
TextSplit::TextSplit(TextSplit&& other) noexcept = default;
TextSplit& TextSplit::operator=(TextSplit&& other) noexcept = default;
TextSplit::~TextSplit() = default;

Result<TextSplit> TextSplit::compile(std::string_view pattern) {
  // \C would cut characters in two.
  constexpr uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
  const std::string translated = translate(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  Code code(
      pcre2_compile(bytes_of(translated), translated.size(), kOptions, &error, &offset, nullptr));
  if (code == nullptr) {
    return fail(ErrorCode::kInvalidInput, "the split pattern does not compile: {}",
                error_text(error));
  }
  // Where there is no just-in-time compiler, or it does not take the pattern, PCRE2 interprets it.
  static_cast<void>(pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE));
  return TextSplit(std::make_unique<Compiled>(Compiled{std::move(code)}));
}

Result<void> TextSplit::for_each_piece(std::string_view utf8,
                                       const std::function<void(std::string_view)>& visit) const {
  Matcher matcher(compiled_->code.get(), utf8);
  size_t at = 0;
  while (at < utf8.size()) {
    const Match match = GAPLESS_TRY(matcher.find(at));
    if (match.begin > at) visit(utf8.substr(at, match.begin - at));
    if (match.end > match.begin) visit(utf8.substr(match.begin, match.end - match.begin));
    at = match.end;
  }
  return {};
}

}  // namespace gapless
