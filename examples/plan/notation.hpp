#pragma once

#include <stretto/plan/messages.hpp>

#include <string>

/// The notation of the golden orders: `F2.5` is the forward of stage 2, microbatch 5; B, I and W likewise; `F0.3+B7.1` is
/// an overlapped pair; `[sF:0.2:1]` sends the activation of stage 0, microbatch 2 to rank 1, `[rB:3.0:2]` receives the
/// gradient of stage 3, microbatch 0 from rank 2. Both ends name the producing stage.
namespace plan_program {

/// The token of a call of `rank`.
std::string token(stretto::plan_facts const& facts, int rank, stretto::call const& one);

/// One line per rank: its calls in order.
std::string golden(stretto::plan const& of);

/// The same with the messages between them.
std::string golden(stretto::plan const& of, stretto::plan_steps const& steps);

} // namespace plan_program
