// SPDX-License-Identifier: Apache-2.0

#include "formats/tracr_metadata.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

namespace gapless {
namespace {

using nlohmann::json;

constexpr uint32_t kMaxChannels = 65536;
constexpr uint64_t kFirstAutoColor = 23;
constexpr std::string_view kExtraLabelKey = "extra_label";

// Reads JSON only to learn where it stops being JSON.
struct ErrorPosition : json::json_sax_t {
  size_t byte = 0;
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(json::number_integer_t) override { return true; }
  bool number_unsigned(json::number_unsigned_t) override { return true; }
  bool number_float(json::number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(json::binary_t&) override { return true; }
  bool start_object(size_t) override { return true; }
  bool key(std::string&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    byte = position;
    return false;
  }
};

void add_damage(TracrMetadata& metadata, std::string text) {
  metadata.findings.push_back(
      {Severity::kWarning, "metadata-damaged", "metadata.json: " + std::move(text), kNoIndex, 1});
}

// The member when it is there with the type wanted; a finding when it has another type.
template <typename IsType>
const json* member(TracrMetadata& metadata, const json& object, const char* key, const char* type,
                   IsType is_type) {
  const auto found = object.find(key);
  if (found == object.end()) return nullptr;
  if (is_type(*found)) return &*found;
  add_damage(metadata, fmt::format("{} is {}, not {}; left out", key, found->type_name(), type));
  return nullptr;
}

const json* array_member(TracrMetadata& metadata, const json& object, const char* key) {
  return member(metadata, object, key, "an array", [](const json& j) { return j.is_array(); });
}

const json* object_member(TracrMetadata& metadata, const json& object, const char* key) {
  return member(metadata, object, key, "an object", [](const json& j) { return j.is_object(); });
}

const json* integer_member(TracrMetadata& metadata, const json& object, const char* key) {
  return member(metadata, object, key, "a whole number",
                [](const json& j) { return j.is_number_integer(); });
}

std::string string_member(TracrMetadata& metadata, const json& object, const char* key) {
  const json* text =
      member(metadata, object, key, "a string", [](const json& j) { return j.is_string(); });
  return text == nullptr ? "" : text->get<std::string>();
}

std::optional<uint64_t> parse_unsigned(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// A time of 0 means that it was not recorded.
int64_t time_member(TracrMetadata& metadata, const json& object, const char* key) {
  const json* number = integer_member(metadata, object, key);
  if (number == nullptr) return 0;
  const uint64_t time = number->get<uint64_t>();
  if (!number->is_number_unsigned() || time >= static_cast<uint64_t>(kMaxTimeNs)) {
    add_damage(metadata, fmt::format("{} is {}, which is no time; left out", key, number->dump()));
    return 0;
  }
  return static_cast<int64_t>(time);
}

// Strings of an array; others become what `placeholder(index)` says, with a finding.
template <typename Placeholder>
std::vector<std::string> read_strings(TracrMetadata& metadata, const json& array, const char* key,
                                      Placeholder placeholder) {
  std::vector<std::string> texts;
  size_t wrong_count = 0;
  for (const json& entry : array) {
    if (!entry.is_string()) ++wrong_count;
    texts.push_back(entry.is_string() ? entry.get<std::string>() : placeholder(texts.size()));
  }
  if (wrong_count > 0) {
    add_damage(metadata, fmt::format("{} of the {} entries of {} are not strings; numbered instead",
                                     wrong_count, texts.size(), key));
  }
  return texts;
}

struct Marker {
  uint64_t number;
  std::string key;
  std::string label;
};

bool has_leading_zero(const Marker& marker) {
  return marker.key.size() > 1 && marker.key.front() == '0';
}

bool are_consecutive(const std::vector<Marker>& markers) {
  for (size_t i = 1; i < markers.size(); ++i) {
    if (markers[i].number != markers[i - 1].number + 1) return false;
  }
  return true;
}

// What the keys of markerTypes, sorted by number, tell about the order of registration. Fixed
// colours (below 23) are chosen by the program in any order and tell nothing.
LabelSource source_of_keys(const std::vector<Marker>& markers) {
  if (markers.size() == 1) return LabelSource::kOnlyMarker;
  const auto same_width = [&](const Marker& m) {
    return m.key.size() == markers.front().key.size();
  };
  const bool padded = std::any_of(markers.begin(), markers.end(), has_leading_zero);
  const bool consecutive = are_consecutive(markers);
  if (padded && (consecutive || std::all_of(markers.begin(), markers.end(), same_width))) {
    return LabelSource::kPaddedKeys;
  }
  if (!padded && consecutive && markers.front().number == kFirstAutoColor) {
    return LabelSource::kAutoColors;
  }
  return LabelSource::kUnknown;
}

void read_marker_types(TracrMetadata& metadata, const json& object, bool labels_by_key_order) {
  const json* types = object_member(metadata, object, "markerTypes");
  if (types == nullptr) return;
  std::vector<Marker> markers;
  bool all_numeric = true;
  for (const auto& [key, label] : types->items()) {
    const std::optional<uint64_t> number = parse_unsigned(key);
    all_numeric = all_numeric && number.has_value() && label.is_string();
    const std::string text = label.is_string() ? label.get<std::string>() : label.dump();
    markers.push_back({number.value_or(0), key, text});
    metadata.markers.push_back(text);
  }
  if (markers.empty() || metadata.label_source == LabelSource::kLabelArray) return;

  if (all_numeric) {
    std::stable_sort(markers.begin(), markers.end(),
                     [](const Marker& a, const Marker& b) { return a.number < b.number; });
    metadata.label_source = source_of_keys(markers);
  }
  if (metadata.label_source == LabelSource::kPaddedKeys) metadata.dialect = TracrDialect::kDevice;
  if (metadata.label_source != LabelSource::kUnknown) {
    for (Marker& marker : markers) metadata.labels.push_back(std::move(marker.label));
  } else if (labels_by_key_order) {
    metadata.label_source = LabelSource::kKeyOrder;
    metadata.labels = metadata.markers;
  }
}

void read_marker_labels(TracrMetadata& metadata, const json& object) {
  const json* labels = array_member(metadata, object, "markerLabels");
  if (labels == nullptr) return;
  metadata.dialect = TracrDialect::kNew;
  metadata.label_source = LabelSource::kLabelArray;
  metadata.labels = read_strings(metadata, *labels, "markerLabels",
                                 [](size_t i) { return fmt::format("event {}", i); });
}

void read_channels(TracrMetadata& metadata, const json& object) {
  uint64_t count = 0;
  if (const json* number = integer_member(metadata, object, "num_channels")) {
    count = number->is_number_unsigned() ? number->get<uint64_t>() : 0;
  }
  if (const json* names = array_member(metadata, object, "channel_names")) {
    metadata.channel_names = read_strings(metadata, *names, "channel_names", [](size_t i) {
      return fmt::format("Channel_{}", i + 1);
    });
    count = std::max<uint64_t>(count, metadata.channel_names.size());
  }
  if (count > kMaxChannels) {
    add_damage(metadata,
               fmt::format("{} channels are declared; a record can name {}", count, kMaxChannels));
    count = kMaxChannels;
    if (metadata.channel_names.size() > kMaxChannels) metadata.channel_names.resize(kMaxChannels);
  }
  metadata.channel_count = static_cast<uint32_t>(count);
}

void read_extra_labels(TracrMetadata& metadata, const json& object) {
  const json* labels = object_member(metadata, object, "extraIdLabels");
  if (labels == nullptr) return;
  size_t wrong_count = 0;
  for (const auto& [key, label] : labels->items()) {
    const std::optional<uint64_t> id = parse_unsigned(key);
    if (!id || *id >= kNoValue || !label.is_string()) {
      ++wrong_count;
      continue;
    }
    metadata.extra_labels.emplace(static_cast<uint32_t>(*id), label.get<std::string>());
  }
  if (wrong_count == 0) return;
  add_damage(metadata, fmt::format("{} of the {} entries of extraIdLabels are not a number and a "
                                   "text; left out",
                                   wrong_count, labels->size()));
}

// One lane of "gapless.lanes": [kind, meaning, number, dropped].
std::optional<TracrLaneNotes> read_lane_notes(const json& entry) {
  if (!entry.is_array() || entry.size() != 4) return std::nullopt;
  for (const json& number : entry) {
    if (!number.is_number_integer()) return std::nullopt;
  }
  const int64_t kind = entry[0].get<int64_t>();
  const int64_t meaning = entry[1].get<int64_t>();
  if (kind < 0 || kind >= kLaneKindCount || meaning < 0 || meaning > 1) return std::nullopt;
  return TracrLaneNotes{.kind = static_cast<LaneKind>(kind),
                        .meaning = static_cast<SpanMeaning>(meaning),
                        .number = entry[2].get<int64_t>(),
                        .dropped_count = entry[3].get<uint64_t>()};
}

void read_gapless_notes(TracrMetadata& metadata, const json& object) {
  const json* notes = object_member(metadata, object, "gapless");
  if (notes == nullptr) return;
  metadata.device_name = string_member(metadata, *notes, "device");
  metadata.not_written = string_member(metadata, *notes, "not_written");
  const auto one_clock = notes->find("one_clock");
  metadata.one_clock =
      one_clock != notes->end() && one_clock->is_boolean() && one_clock->get<bool>();
  const json* lanes = array_member(metadata, *notes, "lanes");
  if (lanes == nullptr) return;
  for (const json& entry : *lanes) {
    const std::optional<TracrLaneNotes> lane = read_lane_notes(entry);
    if (!lane) {
      add_damage(metadata,
                 fmt::format("entry {} of gapless.lanes is not four numbers; all left out",
                             metadata.lanes.size()));
      metadata.lanes.clear();
      return;
    }
    metadata.lanes.push_back(*lane);
  }
}

}  // namespace

std::string_view tracr_dialect_name(TracrDialect dialect) {
  switch (dialect) {
    case TracrDialect::kNone:
      return "none";
    case TracrDialect::kOld:
      return "old";
    case TracrDialect::kDevice:
      return "device";
    case TracrDialect::kNew:
      return "new";
  }
  return "none";
}

Result<TracrMetadata> parse_tracr_metadata(std::string_view text, bool labels_by_key_order) {
  const json object = json::parse(text, nullptr, false);
  if (object.is_discarded()) {
    ErrorPosition position;
    json::sax_parse(text, &position);
    return fail(ErrorCode::kInvalidInput, "metadata.json: not valid JSON at byte {} of {}",
                position.byte, text.size());
  }
  if (!object.is_object()) {
    return fail(ErrorCode::kInvalidInput, "metadata.json: holds {}, not an object",
                object.type_name());
  }
  TracrMetadata metadata;
  metadata.dialect = TracrDialect::kOld;
  if (const json* pid = integer_member(metadata, object, "pid")) metadata.pid = pid->get<int64_t>();
  metadata.start_ns = time_member(metadata, object, "start_time");
  metadata.end_ns = time_member(metadata, object, "end_time");
  read_marker_labels(metadata, object);
  read_marker_types(metadata, object, labels_by_key_order);
  read_channels(metadata, object);
  read_extra_labels(metadata, object);
  read_gapless_notes(metadata, object);
  return metadata;
}

std::string format_tracr_metadata(const TracrMetadata& metadata) {
  json object;
  object["pid"] = metadata.pid.value_or(0);
  object["start_time"] = metadata.start_ns;
  object["end_time"] = metadata.end_ns;
  object["num_channels"] = metadata.channel_count;
  object["channel_names"] = metadata.channel_names;

  // Colours 1, 2, ...: 0 is RESET in Paraver. At least two digits, so that "01" shows what the keys
  // are even when there are few.
  const size_t width = std::max<size_t>(2, std::to_string(metadata.labels.size()).size());
  json types = json::object();
  json colors = json::array();
  for (size_t event = 0; event < metadata.labels.size(); ++event) {
    types[fmt::format("{:0{}}", event + 1, width)] = metadata.labels[event];
    colors.push_back(event + 1);
  }
  object["markerTypes"] = std::move(types);
  object["markerLabels"] = metadata.labels;
  object["markerColorIds"] = std::move(colors);
  if (!metadata.extra_labels.empty()) {
    json labels = json::object();
    for (const auto& [id, label] : metadata.extra_labels) labels[std::to_string(id)] = label;
    object["extraIdLabels"] = std::move(labels);
  }

  json notes;
  notes["device"] = metadata.device_name;
  notes["one_clock"] = metadata.one_clock;
  if (!metadata.not_written.empty()) notes["not_written"] = metadata.not_written;
  json lanes = json::array();
  for (const TracrLaneNotes& lane : metadata.lanes) {
    lanes.push_back({static_cast<int>(lane.kind), static_cast<int>(lane.meaning), lane.number,
                     lane.dropped_count});
  }
  notes["lanes"] = std::move(lanes);
  object["gapless"] = std::move(notes);
  return object.dump(4, ' ', false, json::error_handler_t::replace) + "\n";
}

std::string extra_label_args(const std::string& label) {
  const json args = {{kExtraLabelKey, label}};
  return args.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<std::string> extra_label_of(std::string_view args) {
  const json object = json::parse(args, nullptr, false);
  if (object.is_discarded() || !object.is_object()) return std::nullopt;
  const auto label = object.find(kExtraLabelKey);
  if (label == object.end() || !label->is_string()) return std::nullopt;
  return label->get<std::string>();
}

}  // namespace gapless
