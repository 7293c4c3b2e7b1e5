// SPDX-License-Identifier: Apache-2.0
//
// Profiles from JSON, to JSON, and one parameter at a time. A file is
//   {"name": "...", "summary": "...",
//    "parameters": {"hbm.bytes_per_s": {"value": 1200000000000, "source": "..."}, ...},
//    "kernels": {"q_proj": {"mean_ns": 22700, "sigma_ns": 1600, "source": "..."}, ...}}

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "sim/device_profile.h"

namespace gapless {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kShownBytes = 60;
constexpr double kExactDouble = 9007199254740992.0;  // 2^53: whole numbers up to it are exact
constexpr int64_t kMaxKernelNs = 1'000'000'000'000;
constexpr std::string_view kSetSource = "set by the user";

std::string shown(const Json& value) {
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kShownBytes) text = text.substr(0, kShownBytes) + "...";
  return text;
}

// A whole number, also when written as 1.2e12.
std::optional<int64_t> whole_number(const Json& value) {
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (!(std::abs(number) <= kExactDouble) || number != std::floor(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

struct Bounds {
  int64_t least;
  int64_t most;
};

Result<int64_t> read_number(const Json& value, const std::string& place, Bounds bounds) {
  const std::optional<int64_t> number = whole_number(value);
  if (!number || *number < bounds.least || *number > bounds.most) {
    return fail(ErrorCode::kInvalidInput, "{} is {}; it must be a whole number from {} to {}",
                place, shown(value), bounds.least, bounds.most);
  }
  return *number;
}

Result<const Json*> member(const Json& object, const char* key, const std::string& place) {
  const auto found = object.find(key);
  if (found == object.end()) {
    return fail(ErrorCode::kInvalidInput, "{}: \"{}\" is missing", place, key);
  }
  return &*found;
}

Result<std::string> text_member(const Json& object, const char* key, const std::string& place) {
  const Json* value = GAPLESS_TRY(member(object, key, place));
  if (!value->is_string() || value->get_ref<const std::string&>().empty()) {
    return fail(ErrorCode::kInvalidInput, "{}: \"{}\" is {}; it must be a text", place, key,
                shown(*value));
  }
  return value->get<std::string>();
}

// The object itself, when it has only these keys.
Result<void> check_object(const Json& object, std::initializer_list<std::string_view> keys,
                          const std::string& place) {
  if (!object.is_object()) {
    return fail(ErrorCode::kInvalidInput, "{} is {}; it must be an object", place, shown(object));
  }
  for (const auto& [key, value] : object.items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      return fail(ErrorCode::kInvalidInput, "{}: \"{}\" is not a key that is known here", place,
                  key);
    }
  }
  return {};
}

size_t parameter_index(std::string_view key) {
  const std::span<const ProfileParameter> parameters = profile_parameters();
  const auto found = std::find_if(parameters.begin(), parameters.end(),
                                  [key](const ProfileParameter& one) { return one.key == key; });
  return static_cast<size_t>(found - parameters.begin());
}

Result<void> read_parameters(const Json& object, const std::string& path, DeviceProfile& profile) {
  if (!object.is_object()) {
    return fail(ErrorCode::kInvalidInput, "{}: \"parameters\" is {}; it must be an object", path,
                shown(object));
  }
  const std::span<const ProfileParameter> parameters = profile_parameters();
  profile.sources.assign(parameters.size(), "");
  for (const auto& [key, entry] : object.items()) {
    const size_t index = parameter_index(key);
    const std::string place = fmt::format("{}: {}", path, key);
    if (index == parameters.size()) {
      return fail(ErrorCode::kInvalidInput, "{}: there is no parameter \"{}\"", path, key);
    }
    GAPLESS_TRY(check_object(entry, {"value", "source"}, place));
    const Json* value = GAPLESS_TRY(member(entry, "value", place));
    const ProfileParameter& parameter = parameters[index];
    profile.*parameter.member =
        GAPLESS_TRY(read_number(*value, place, {parameter.least, parameter.most}));
    profile.sources[index] = GAPLESS_TRY(text_member(entry, "source", place));
  }
  for (size_t index = 0; index < parameters.size(); ++index) {
    if (!profile.sources[index].empty()) continue;
    return fail(ErrorCode::kInvalidInput, "{}: the parameter \"{}\" is missing", path,
                parameters[index].key);
  }
  return {};
}

Result<void> read_kernels(const Json& object, const std::string& path, DeviceProfile& profile) {
  if (!object.is_object()) {
    return fail(ErrorCode::kInvalidInput, "{}: \"kernels\" is {}; it must be an object", path,
                shown(object));
  }
  for (const auto& [key, entry] : object.items()) {
    const std::string place = fmt::format("{}: kernel {}", path, key);
    GAPLESS_TRY(check_object(entry, {"mean_ns", "sigma_ns", "source"}, place));
    const Json* mean = GAPLESS_TRY(member(entry, "mean_ns", place));
    const Json* sigma = GAPLESS_TRY(member(entry, "sigma_ns", place));
    KernelCalibration kernel;
    kernel.kernel = key;
    kernel.mean_ns = GAPLESS_TRY(read_number(*mean, place + ": mean_ns", {0, kMaxKernelNs}));
    kernel.sigma_ns = GAPLESS_TRY(read_number(*sigma, place + ": sigma_ns", {0, kMaxKernelNs}));
    kernel.source = GAPLESS_TRY(text_member(entry, "source", place));
    profile.kernels.push_back(std::move(kernel));
  }
  std::sort(
      profile.kernels.begin(), profile.kernels.end(),
      [](const KernelCalibration& a, const KernelCalibration& b) { return a.kernel < b.kernel; });
  return {};
}

// "kernel.NAME.mean_ns" and "kernel.NAME.sigma_ns"; the name may have dots.
Result<void> set_kernel(DeviceProfile& profile, std::string_view key, int64_t number) {
  constexpr std::string_view kPrefix = "kernel.";
  const size_t dot = key.rfind('.');
  const std::string_view field = key.substr(dot + 1);
  const bool is_mean = field == "mean_ns";
  if (dot <= kPrefix.size() || (!is_mean && field != "sigma_ns")) {
    return fail(ErrorCode::kInvalidInput,
                "{}: of a kernel kernel.NAME.mean_ns and kernel.NAME.sigma_ns can be set", key);
  }
  if (number < 0 || number > kMaxKernelNs) {
    return fail(ErrorCode::kInvalidInput, "{} is {}; it must be from 0 to {}", key, number,
                kMaxKernelNs);
  }
  const std::string_view name = key.substr(kPrefix.size(), dot - kPrefix.size());
  const auto place = std::lower_bound(
      profile.kernels.begin(), profile.kernels.end(), name,
      [](const KernelCalibration& one, std::string_view wanted) { return one.kernel < wanted; });
  const bool is_known = place != profile.kernels.end() && place->kernel == name;
  if (!is_known && !is_mean) {
    return fail(ErrorCode::kInvalidInput, "{}: set kernel.{}.mean_ns first", key, name);
  }
  const auto kernel =
      is_known ? place : profile.kernels.insert(place, {.kernel = std::string(name), .source = ""});
  (is_mean ? kernel->mean_ns : kernel->sigma_ns) = number;
  kernel->source = kSetSource;
  return {};
}

}  // namespace

Result<DeviceProfile> parse_profile(std::string_view text, const std::string& path) {
  const Json object = Json::parse(text, nullptr, false);
  if (object.is_discarded()) {
    return fail(ErrorCode::kInvalidInput, "{}: is not valid JSON", path);
  }
  GAPLESS_TRY(check_object(object, {"name", "summary", "parameters", "kernels"}, path));
  DeviceProfile profile;
  profile.name = GAPLESS_TRY(text_member(object, "name", path));
  profile.summary = GAPLESS_TRY(text_member(object, "summary", path));
  const Json* parameters = GAPLESS_TRY(member(object, "parameters", path));
  GAPLESS_TRY(read_parameters(*parameters, path, profile));
  const Json* kernels = GAPLESS_TRY(member(object, "kernels", path));
  GAPLESS_TRY(read_kernels(*kernels, path, profile));
  GAPLESS_TRY(check_profile(profile, path));
  return profile;
}

Result<void> set_parameter(DeviceProfile& profile, std::string_view assignment) {
  const size_t equals = assignment.find('=');
  if (equals == std::string_view::npos) {
    return fail(ErrorCode::kInvalidInput,
                "{}: a parameter is set as NAME=NUMBER, such as hbm.bytes_per_s=1.2e12",
                assignment);
  }
  const std::string_view key = assignment.substr(0, equals);
  const std::string_view text = assignment.substr(equals + 1);
  const Json value = Json::parse(text, nullptr, false);
  const std::optional<int64_t> number = value.is_discarded() ? std::nullopt : whole_number(value);
  if (!number) {
    return fail(ErrorCode::kInvalidInput, "{}: \"{}\" is not a whole number", key, text);
  }
  if (key.starts_with("kernel.")) return set_kernel(profile, key, *number);
  const size_t index = parameter_index(key);
  if (index == profile_parameters().size()) {
    return fail(ErrorCode::kInvalidInput, "there is no parameter \"{}\"", key);
  }
  const ProfileParameter& parameter = profile_parameters()[index];
  DeviceProfile changed = profile;
  changed.*parameter.member =
      GAPLESS_TRY(read_number(value, std::string(key), {parameter.least, parameter.most}));
  changed.sources.resize(profile_parameters().size());
  changed.sources[index] = kSetSource;
  GAPLESS_TRY(check_profile(changed, std::string(assignment)));
  profile = std::move(changed);
  return {};
}

std::string profile_json(const DeviceProfile& profile) {
  Json parameters = Json::object();
  const std::span<const ProfileParameter> table = profile_parameters();
  for (size_t index = 0; index < table.size(); ++index) {
    const bool has_source = index < profile.sources.size() && !profile.sources[index].empty();
    parameters[std::string(table[index].key)] = {
        {"value", profile.*table[index].member},
        {"source", has_source ? profile.sources[index] : "not given"}};
  }
  Json kernels = Json::object();
  for (const KernelCalibration& kernel : profile.kernels) {
    kernels[kernel.kernel] = {
        {"mean_ns", kernel.mean_ns}, {"sigma_ns", kernel.sigma_ns}, {"source", kernel.source}};
  }
  const Json object = {{"name", profile.name},
                       {"summary", profile.summary},
                       {"parameters", std::move(parameters)},
                       {"kernels", std::move(kernels)}};
  return object.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace gapless
