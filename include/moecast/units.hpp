#pragma once
/// Strong unit types. One unit inside: second, byte, flop, as double (integers below 2^53 stay
/// exact). Quantities add only to their own kind; products and ratios change the exponents, so
/// Bytes / BytesPerSecond is Seconds and Seconds + Bytes does not compile.
#include <algorithm>
#include <compare>

namespace moecast {

template <int TimeExp, int ByteExp, int FlopExp>
struct Quantity {
  double value = 0.0;  ///< in seconds^TimeExp * bytes^ByteExp * flops^FlopExp

  constexpr Quantity() = default;
  explicit constexpr Quantity(double v) : value(v) {}

  constexpr auto operator<=>(const Quantity&) const = default;
  constexpr Quantity& operator+=(Quantity o) {
    value += o.value;
    return *this;
  }
  constexpr Quantity& operator-=(Quantity o) {
    value -= o.value;
    return *this;
  }
  constexpr Quantity& operator*=(double k) {
    value *= k;
    return *this;
  }
  constexpr Quantity& operator/=(double k) {
    value /= k;
    return *this;
  }
  friend constexpr Quantity operator+(Quantity a, Quantity b) {
    return Quantity(a.value + b.value);
  }
  friend constexpr Quantity operator-(Quantity a, Quantity b) {
    return Quantity(a.value - b.value);
  }
  friend constexpr Quantity operator-(Quantity a) { return Quantity(-a.value); }
  friend constexpr Quantity operator*(Quantity a, double k) { return Quantity(a.value * k); }
  friend constexpr Quantity operator*(double k, Quantity a) { return Quantity(a.value * k); }
  friend constexpr Quantity operator/(Quantity a, double k) { return Quantity(a.value / k); }
};

template <int T, int B, int F, int U, int C, int G>
constexpr auto operator*(Quantity<T, B, F> a, Quantity<U, C, G> b) {
  if constexpr (T + U == 0 && B + C == 0 && F + G == 0) {
    return a.value * b.value;
  } else {
    return Quantity<T + U, B + C, F + G>(a.value * b.value);
  }
}

template <int T, int B, int F, int U, int C, int G>
constexpr auto operator/(Quantity<T, B, F> a, Quantity<U, C, G> b) {
  if constexpr (T == U && B == C && F == G) {
    return a.value / b.value;
  } else {
    return Quantity<T - U, B - C, F - G>(a.value / b.value);
  }
}

using Seconds = Quantity<1, 0, 0>;
using Bytes = Quantity<0, 1, 0>;
using Flops = Quantity<0, 0, 1>;
using BytesPerSecond = Quantity<-1, 1, 0>;
using FlopsPerSecond = Quantity<-1, 0, 1>;

inline constexpr double kBytesPerGib = 1024.0 * 1024.0 * 1024.0;

constexpr Seconds seconds(double v) { return Seconds(v); }
constexpr Seconds microseconds(double v) { return Seconds(v * 1e-6); }
constexpr Seconds milliseconds(double v) { return Seconds(v * 1e-3); }
constexpr Bytes bytes(double v) { return Bytes(v); }
constexpr Bytes mebibytes(double v) { return Bytes(v * 1024.0 * 1024.0); }
constexpr Bytes gibibytes(double v) { return Bytes(v * kBytesPerGib); }
constexpr BytesPerSecond gigabytes_per_second(double v) { return BytesPerSecond(v * 1e9); }
constexpr BytesPerSecond gigabits_per_second(double v) { return BytesPerSecond(v * 1e9 / 8.0); }
constexpr FlopsPerSecond teraflops(double v) { return FlopsPerSecond(v * 1e12); }

constexpr double in_gib(Bytes b) { return b.value / kBytesPerGib; }
constexpr double in_mib(Bytes b) { return b.value / (1024.0 * 1024.0); }
constexpr double in_us(Seconds s) { return s.value * 1e6; }
constexpr double in_ms(Seconds s) { return s.value * 1e3; }
constexpr double in_gb_per_s(BytesPerSecond b) { return b.value / 1e9; }
constexpr double in_tflops(FlopsPerSecond f) { return f.value / 1e12; }

template <int T, int B, int F>
constexpr Quantity<T, B, F> max(Quantity<T, B, F> a, Quantity<T, B, F> b) {
  return a < b ? b : a;
}
template <int T, int B, int F>
constexpr Quantity<T, B, F> min(Quantity<T, B, F> a, Quantity<T, B, F> b) {
  return b < a ? b : a;
}

}  // namespace moecast
