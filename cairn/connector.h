// Public headers of the component "connector": what an engine's scheduler and workers call, one rank or many.
#pragma once

// IWYU pragma: begin_exports
#include "cairn/connector/request_id.h"
#include "cairn/connector/scheduler_connector.h"
#include "cairn/connector/slot.h"
#include "cairn/connector/slot_manager.h"
#include "cairn/connector/worker_connector.h"
#include "cairn/manager.h"
#include "cairn/transfer/step_event.h"
// IWYU pragma: end_exports
