# SPDX-License-Identifier: Apache-2.0
#
# cmake -D WEB_DIR=... -D MODULES=a.js,b.js -D OUTPUT=... -P embed_web.cmake
# Writes the files of web/ into a C++ source: page_html(), page_style() and page_script() of
# src/report/page.h. The modules, each after those that it imports, become one script: imports of
# each other go away, exports become plain declarations. So a module may use another's names as they
# are, and no two may declare the same name. What would not work in the browser is an error here.

cmake_minimum_required(VERSION 3.25)

string(REPLACE "," ";" MODULES "${MODULES}")
set(PIECE_BYTES 60000)  # compilers need not take string literals of more than 65536

# Sets <result> to the text of web/<name>.
function(read_web_file name result)
  if(NOT EXISTS "${WEB_DIR}/${name}")
    message(FATAL_ERROR "${WEB_DIR}/${name}: is not there, and the report page needs it")
  endif()
  file(READ "${WEB_DIR}/${name}" text)
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

# Takes the imports out of the text of a module, which begins with a line break.
function(remove_imports name text result)
  string(REGEX MATCHALL "\nimport[ {*'\"][^;]*" imports "${text}")
  foreach(import ${imports})
    if(NOT import MATCHES "^\nimport *{[A-Za-z0-9_$, \n]*} *from *['\"]\\./([a-z_]+\\.js)['\"]$")
      message(FATAL_ERROR "${name}: cannot put this import into one script; it must be "
        "import {names} from './module.js'; without other names for them:${import};")
    endif()
    set(imported "${CMAKE_MATCH_1}")
    list(FIND MODULES "${imported}" imported_place)
    list(FIND MODULES "${name}" own_place)
    if(imported_place EQUAL -1)
      message(FATAL_ERROR "${name}: imports ${imported}, which is none of: ${MODULES}")
    endif()
    if(NOT imported_place LESS own_place)
      message(FATAL_ERROR "${name}: imports ${imported}, which comes after it in: ${MODULES}")
    endif()
    if(import MATCHES "[{,][ \n]*[A-Za-z0-9_$]+[ \n]+as[ \n]")
      message(FATAL_ERROR "${name}: an import gives a name another name:${import};")
    endif()
  endforeach()
  string(REGEX REPLACE "\nimport[ {*'\"][^;]*;" "" text "${text}")
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

# Declarations stay; lists of exports and a default have no meaning in one script.
function(remove_exports name text result)
  set(declaration "(async function|function|const|let|class)")
  string(REGEX REPLACE "\nexport +${declaration}([ *])" "\n\\1\\2" text "${text}")
  if(text MATCHES "\n(export[^a-zA-Z0-9_$][^\n]*)")
    message(FATAL_ERROR "${name}: cannot put this export into one script: ${CMAKE_MATCH_1}")
  endif()
  set(${result} "${text}" PARENT_SCOPE)
endfunction()

# The modules one after another, without their imports and exports.
function(join_modules result)
  set(script "")
  set(declared "")
  foreach(name ${MODULES})
    read_web_file(${name} text)
    remove_imports(${name} "\n${text}" text)
    remove_exports(${name} "${text}" text)
    string(REGEX MATCHALL
      "\n(async function|function|const|let|var|class)[ *]+[A-Za-z_$][A-Za-z0-9_$]*"
      declarations "${text}")
    foreach(declaration ${declarations})
      string(REGEX REPLACE ".*[ *]" "" identifier "${declaration}")
      if(identifier IN_LIST declared)
        message(FATAL_ERROR "${name}: declares ${identifier}, which another module or itself "
          "declares too; in one script each name can be there once")
      endif()
      list(APPEND declared ${identifier})
    endforeach()
    string(APPEND script "${text}")
  endforeach()
  set(${result} "${script}" PARENT_SCOPE)
endfunction()

# A text that would end its element early would spill over the page.
function(refuse what text)
  string(TOLOWER "${text}" lower)
  foreach(mark ${ARGN})
    string(FIND "${lower}" "${mark}" place)
    if(NOT place EQUAL -1)
      message(FATAL_ERROR "${what}: has ${mark}, which HTML takes for its own")
    endif()
  endforeach()
endfunction()

function(check_placeholders html)
  foreach(mark "<!--TITLE-->" "/*STYLE*/" "<!--DATA-->" "/*SCRIPT*/")
    string(FIND "${html}" "${mark}" first)
    string(FIND "${html}" "${mark}" last REVERSE)
    if(first EQUAL -1 OR NOT first EQUAL last)
      message(FATAL_ERROR "report.html: must have ${mark} exactly once")
    endif()
  endforeach()
endfunction()

# Appends a function that gives the text. Literals end at the end of a line, so that no character of
# several bytes is cut in two.
function(append_function function text)
  string(FIND "${text}" ")gapless\"" place)
  if(NOT place EQUAL -1)
    message(FATAL_ERROR "${function}: the text has the end mark of our string literals")
  endif()
  set(code "\nstd::string_view ${function}() {\n  static const std::string text = join({")
  string(LENGTH "${text}" left)
  while(left GREATER 0)
    string(SUBSTRING "${text}" 0 ${PIECE_BYTES} piece)
    if(left GREATER PIECE_BYTES)
      string(FIND "${piece}" "\n" line_end REVERSE)
      if(line_end EQUAL -1)
        message(FATAL_ERROR "${function}: a line is longer than ${PIECE_BYTES} bytes")
      endif()
      math(EXPR size "${line_end} + 1")
      string(SUBSTRING "${text}" 0 ${size} piece)
    endif()
    string(LENGTH "${piece}" size)
    string(SUBSTRING "${text}" ${size} -1 text)
    string(LENGTH "${text}" left)
    string(APPEND code "\n      R\"gapless(${piece})gapless\",")
  endwhile()
  string(APPEND code "\n  });\n  return text;\n}\n")
  set(source "${source}${code}" PARENT_SCOPE)
endfunction()

read_web_file(report.html html)
read_web_file(report.css style)
join_modules(script)
check_placeholders("${html}")
refuse("report.css" "${style}" "</style")
refuse("the script" "${script}" "</script" "<!--")

set(source "// Made by cmake/embed_web.cmake from web/.

#include <initializer_list>
#include <string>
#include <string_view>

#include \"report/page.h\"

namespace gapless {
namespace {

std::string join(std::initializer_list<std::string_view> pieces) {
  std::string text;
  for (const std::string_view piece : pieces) text += piece;
  return text;
}

}  // namespace
")
append_function(page_html "${html}")
append_function(page_style "${style}")
append_function(page_script "${script}")
string(APPEND source "\n}  // namespace gapless\n")
file(WRITE "${OUTPUT}" "${source}")
