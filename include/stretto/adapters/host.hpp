#pragma once

/// Ranks as threads of one process, lanes as threads of a rank: for development, tests and training on a CPU.
#include <stretto/adapters/host/group.hpp>
#include <stretto/adapters/host/lanes.hpp>
#include <stretto/adapters/host/peers.hpp>
