#pragma once

/// What a thread has asked of the runtime without a GPU so far.
struct issued_calls {
  int records = 0, waits = 0, copies = 0;

  issued_calls operator-(issued_calls const& before) const {
    return {records - before.records, waits - before.waits, copies - before.copies};
  }
};
issued_calls& calls_of_this_thread();
