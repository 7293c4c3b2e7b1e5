// SPDX-License-Identifier: Apache-2.0
//
// Result<T>: a value or a sentence that says why there is none.
//
// For the world's faults: a file, a flag, a shape, memory. The names are those of std::expected
// (C++23), so that an alias can replace it one day. Our own bugs are for base/check.h.

#pragma once

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include <fmt/core.h>

namespace gapless {

enum class ErrorCode {
  kInvalidInput,  // what we were given is wrong
  kSystem,        // the operating system refused
  kUsage,         // the command line is wrong: exit status 2
};

struct Error {
  ErrorCode code = ErrorCode::kInvalidInput;
  std::string message;  // a lower-case sentence with the names and numbers needed to act
};

// return fail(ErrorCode::kInvalidInput, "{}: not a trace file", path);
template <typename... Args>
[[nodiscard]] Error fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  return Error{code, fmt::vformat(format, fmt::make_format_args(args...))};
}

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT: as std::expected
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT

  bool has_value() const { return state_.index() == 0; }
  explicit operator bool() const { return has_value(); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  Error& error() & { return std::get<1>(state_); }
  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT: as std::expected

  bool has_value() const { return !error_.has_value(); }
  explicit operator bool() const { return has_value(); }
  void value() const {}
  Error& error() & { return *error_; }
  const Error& error() const& { return *error_; }
  Error&& error() && { return std::move(*error_); }

 private:
  std::optional<Error> error_;
};

}  // namespace gapless

// The value of a Result, or return its error from this function.
#define GAPLESS_TRY(expression)                                    \
  __extension__({                                                  \
    auto gapless_result = (expression);                            \
    if (!gapless_result) return std::move(gapless_result).error(); \
    std::move(gapless_result).value();                             \
  })
