// SPDX-License-Identifier: Apache-2.0

#include "trace/registry.h"

#include <algorithm>

namespace gapless {
namespace {

constexpr size_t kMaxTextBytes = 4096;   // an entry has to fit into a metadata chunk
constexpr size_t kLastId = kNoName - 1;  // the one that all later ones share
static_assert(kNoName == kNoLane);

}  // namespace

uint16_t Registry::intern_name(std::string_view text, bool* is_new) {
  *is_new = false;
  text = text.substr(0, kMaxTextBytes);
  const auto found = name_ids_.find(std::string(text));
  if (found != name_ids_.end()) return found->second;
  if (names_.size() > kLastId) return static_cast<uint16_t>(kLastId);
  *is_new = true;
  const uint16_t id = static_cast<uint16_t>(names_.size());
  names_.emplace_back(id == kLastId ? "(more than 65534 names)" : text);
  if (id != kLastId) name_ids_.emplace(text, id);
  return id;
}

uint16_t Registry::add_lane(RegisteredLane lane) {
  if (lanes_.size() > kLastId) return static_cast<uint16_t>(kLastId);
  if (lanes_.size() == kLastId) lane.name = "(more than 65534 lanes)";
  lane.name.resize(std::min(lane.name.size(), kMaxTextBytes));
  lanes_.push_back(std::move(lane));
  return static_cast<uint16_t>(lanes_.size() - 1);
}

void Registry::rename_lane(uint16_t lane, std::string_view name) {
  lanes_[lane].name = name.substr(0, kMaxTextBytes);
}

uint32_t Registry::intern_device(std::string_view name, bool* is_new) {
  name = name.substr(0, kMaxTextBytes);
  const auto found = std::find(devices_.begin(), devices_.end(), name);
  *is_new = found == devices_.end();
  if (!*is_new) return static_cast<uint32_t>(found - devices_.begin());
  devices_.emplace_back(name);
  return static_cast<uint32_t>(devices_.size() - 1);
}

const RegisteredProperty* Registry::set_property(std::string_view key, std::string_view value) {
  key = key.substr(0, std::min(key.find('\0'), kMaxTextBytes));
  value = value.substr(0, kMaxTextBytes);
  if (key.empty()) return nullptr;
  auto found = std::find_if(properties_.begin(), properties_.end(),
                            [key](const RegisteredProperty& known) { return known.key == key; });
  if (found == properties_.end()) {
    properties_.push_back({std::string(key), std::string(value)});
    return &properties_.back();
  }
  if (found->value == value) return nullptr;
  found->value = value;
  return &*found;
}

}  // namespace gapless
