// Events as lines of JSON, in the form that routers of Dynamo read.
//
//     {"event_id":7,"tier":"G1","data":{"stored":{"parent_hash":null,"blocks":[
//         {"block_hash":11,"tokens_hash":12,"position":0}],"token_ids":[1,2]}}}
//     {"event_id":8,"tier":"G2","data":{"removed":{"block_hashes":[11]}}}
//     {"event_id":9,"tier":"G3","data":"cleared"}
//     {"event_id":10,"tier":"G3","data":"suspended"}
//     {"event_id":11,"tier":"G3","data":"resumed"}
//     {"event_id":12,"tier":"G3","data":{"invalidated":{"weights_generation":8}}}
//
// One line for each event, without spaces. block_hash is the 64-bit sequence hash of the block; parent_hash is that of the
// block before the first one, or null. token_ids is there only if the event has them. "suspended", "resumed" and
// "invalidated" are Cairn's own: a reader that ignores them counts the blocks of a suspended tier, and does not know the
// generation of the weights. If a tier had blocks, a "cleared" comes before "invalidated".
//
// Hashes are unsigned 64-bit integers: a reader that stores numbers as doubles loses bits.
#pragma once

#include <string>

#include "cairn/events/event.h"

namespace cairn {

// Appends the event and a newline.
void append_json_line(const Event& event, std::string& out);

}  // namespace cairn
