#pragma once

#if !__has_include(<nccl.h>)
#error "stretto/adapters/nccl.hpp needs <nccl.h>: add the include folder of NCCL"
#endif

/// Rows and messages of device memory by NCCL, one GPU a rank. `session` joins the ranks, `watchdog` ends what does not end by
/// itself.
#include <stretto/adapters/nccl/budget.hpp>
#include <stretto/adapters/nccl/memory.hpp>
#include <stretto/adapters/nccl/peers.hpp>
#include <stretto/adapters/nccl/rows.hpp>
#include <stretto/adapters/nccl/session.hpp>
#include <stretto/adapters/nccl/watchdog.hpp>
