#pragma once

// Ranks that are processes, over any c10d backend. What makes groups of Gloo is in <stretto/adapters/c10d/gloo.hpp>, which
// needs Gloo's headers; a trainer that has groups already does not include it.
#include <stretto/adapters/c10d/communicator.hpp>
#include <stretto/adapters/c10d/device_rows.hpp>
#include <stretto/adapters/c10d/environment.hpp>
#include <stretto/adapters/c10d/peers.hpp>
