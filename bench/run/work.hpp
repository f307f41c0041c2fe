#pragma once

// What the phases of the benchmark do, out of the compiler's sight: next to nothing, so that what remains is the schedule.
extern "C" {
void phase_work(void* view, int which);
void lane_begin(int lane, int which);
void lane_record(int lane, void* event);
void lane_wait(int lane, void* event);
}
