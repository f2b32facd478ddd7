// Public headers of the component "core": keys of tokens, block pools with prefix reuse and eviction, events. No memory, no copies.
#pragma once

// IWYU pragma: begin_exports
#include "cairn/allocator/block_manager.h"
#include "cairn/base/clock.h"
#include "cairn/base/ids.h"
#include "cairn/base/result.h"
#include "cairn/events/consolidator.h"
#include "cairn/events/event.h"
#include "cairn/events/event_log.h"
#include "cairn/events/event_publisher.h"
#include "cairn/events/event_receiver.h"
#include "cairn/events/event_stream.h"
#include "cairn/events/kv_event.h"
#include "cairn/events/residency_view.h"
#include "cairn/evict/retention.h"
#include "cairn/pool/block_pool.h"
#include "cairn/pool/blocks.h"
#include "cairn/pool/pool_observer.h"
#include "cairn/tokens/block_key.h"
#include "cairn/tokens/engine_key.h"
#include "cairn/tokens/hashes.h"
#include "cairn/tokens/key_hasher.h"
#include "cairn/tokens/token_sequence.h"
// IWYU pragma: end_exports
