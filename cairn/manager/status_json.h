// A manager's status as JSON, for programs that see it through the C interface or over HTTP. Internal.
//
// Thread safety: functions of plain values.
#pragma once

#include <string>

#include "cairn/base/json_writer.h"
#include "cairn/manager/manager_status.h"

namespace cairn {

[[nodiscard]] std::string status_as_json(const ManagerStatus& status);
// One incident, with what to do about it. `now` is the time of the status: an incident says how long ago it happened.
void write_json(JsonWriter& json, const Incident& incident, TimePoint now);

}  // namespace cairn
