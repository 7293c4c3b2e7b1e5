# SPDX-License-Identifier: Apache-2.0
#
# cmake -D FOLDER=... -D FILES=a.json,b.json -D OUTPUT=... -P embed_profiles.cmake
# Writes device profiles into a C++ source: builtin_profile_texts() of sim/device_profile.h.

cmake_minimum_required(VERSION 3.25)

string(REPLACE "," ";" FILES "${FILES}")
set(entries "")
foreach(name ${FILES})
  file(READ "${FOLDER}/${name}" text)
  string(LENGTH "${text}" size)
  if(size GREATER 60000)
    message(FATAL_ERROR "${name}: has ${size} bytes; a string literal may have 65536")
  endif()
  string(FIND "${text}" ")gapless\"" place)
  if(NOT place EQUAL -1)
    message(FATAL_ERROR "${name}: has the end mark of our string literals")
  endif()
  string(APPEND entries "    {\"${name}\", R\"gapless(${text})gapless\"},\n")
endforeach()
list(LENGTH FILES count)

file(WRITE "${OUTPUT}" "// Made by src/sim/embed_profiles.cmake.

#include <array>

#include \"sim/device_profile.h\"

namespace gapless {
namespace {

constexpr std::array<ProfileText, ${count}> kTexts = {{
${entries}}};

}  // namespace

std::span<const ProfileText> builtin_profile_texts() { return kTexts; }

}  // namespace gapless
")
