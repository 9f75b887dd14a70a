#pragma once
// Debian 12 ships Catch2 v2 (one header), newer systems v3.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_all.hpp>
using Catch::Approx;
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;
#else
#include <catch2/catch.hpp>
using Catch::Matchers::WithinAbs;
using Catch::Matchers::WithinRel;
#endif
