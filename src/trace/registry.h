// SPDX-License-Identifier: Apache-2.0
//
// Registry: the names, lanes, devices and properties of this process. They outlive recordings, so
// that a name made in a static initialiser is good in every recording that follows. Not
// thread-safe: the caller (process_recorder.cc) holds a lock.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gapless/trace_format.h"

namespace gapless {

struct RegisteredLane {
  std::string name;
  LaneKind kind;
  uint32_t device;
  int64_t number;
};

struct RegisteredProperty {
  std::string key;
  std::string value;
};

class Registry {
 public:
  // Both hold 65,534 entries and one more that all later ones share. Texts are cut at 4,096 bytes.
  uint16_t intern_name(std::string_view text, bool* is_new);
  uint16_t add_lane(RegisteredLane lane);
  uint32_t intern_device(std::string_view name, bool* is_new);
  void rename_lane(uint16_t lane, std::string_view name);
  // The property as it is now; nullptr when nothing has changed, or the key is empty. Looks through
  // all of them: there are tens.
  const RegisteredProperty* set_property(std::string_view key, std::string_view value);

  const std::vector<std::string>& names() const { return names_; }
  const std::vector<RegisteredLane>& lanes() const { return lanes_; }
  const std::vector<std::string>& devices() const { return devices_; }  // 0, "", is the process
  const std::vector<RegisteredProperty>& properties() const { return properties_; }

 private:
  std::unordered_map<std::string, uint16_t> name_ids_;
  std::vector<std::string> names_;
  std::vector<RegisteredLane> lanes_;
  std::vector<std::string> devices_ = {""};
  std::vector<RegisteredProperty> properties_;
};

}  // namespace gapless
