#pragma once

/// What a thread has asked of the runtime without a GPU so far.
struct issued_calls {
  int records = 0, waits = 0, copies = 0;
};
issued_calls& calls_of_this_thread();
