// SPDX-License-Identifier: Apache-2.0
//
// What `nsys export --type sqlite` writes of an Nsight Systems report: kernels, copies and fills on
// streams, with the host's call that launched each. Kernels of one graph launch share its call.
//
// Tables are there only when something was recorded for them; columns differ by version.

#pragma once

#include <string>

#include "base/result.h"
#include "formats/capture_options.h"
#include "formats/database.h"
#include "trace/capture_table.h"

namespace gapless {

bool is_nsys_database(const Database& database);
Result<CaptureTable> read_nsys_db(const Database& database, const CaptureReadOptions& options = {});
Result<CaptureTable> read_nsys_db(const std::string& path, const CaptureReadOptions& options = {});

}  // namespace gapless
