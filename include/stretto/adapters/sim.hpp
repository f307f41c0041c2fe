#pragma once

#include <stretto/adapters/sim/attack.hpp>
#include <stretto/adapters/sim/rank.hpp>
