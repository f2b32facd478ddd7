// Events as lines of JSON, for people and programs, in the shape that routers know.
//
//     {"event_id":7,"tier":"G1","data":{"stored":{"parent_hash":null,"blocks":[
//         {"block_hash":11,"tokens_hash":12,"position":0}],"token_ids":[1,2]}}}
//     {"event_id":8,"tier":"G2","data":{"removed":{"block_hashes":[11]}}}
//     {"event_id":9,"tier":"G3","data":"cleared"}
//     {"event_id":10,"tier":"G3","data":"suspended"}
//     {"event_id":11,"tier":"G3","data":"resumed"}
//     {"event_id":12,"tier":"G3","data":{"invalidated":{"weights_generation":8}}}
//
// Does:     one line an event, without spaces. A block_hash is the block's 64-bit sequence hash, parent_hash that of
//           the block before the first (null where there is none); token_ids stand there only where the event has them.
//           The last three are Cairn's own. A reader that passes over them takes what a suspended tier holds to be there,
//           and does not learn which weights blocks are of: before an "invalidated" stands a "cleared" if there was anything.
//           Hashes are unsigned 64-bit integers, beyond what a reader that keeps numbers as doubles can hold.
// Threads:  pure.
#pragma once

#include <string>

#include "cairn/events/event.h"

namespace cairn {

// Appends the event and a newline.
void append_json_line(const Event& event, std::string& out);

}  // namespace cairn
