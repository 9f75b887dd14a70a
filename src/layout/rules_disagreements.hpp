#pragma once
#include <string_view>

namespace moecast {

/// Last section of docs/rules.md.
inline constexpr std::string_view kDisagreements = R"(
## How far the rules agree with Megatron

4,868 random and directed layouts were put through Megatron-LM's own validation code and through
Megatron-Bridge's (4,600 of them: the others use options that Bridge does not have). `check --batch`
gives the same verdict on

| launcher | layouts | same verdict |
|---|---|---|
| Megatron-LM d98e8a64 | 4,868 | 100.0 % |
| Megatron-Bridge 067f987d | 4,600 | 98.5 % |

The 69 disagreements with Bridge, all rejected here and accepted there:

| layouts | rule | reason |
|---|---|---|
| 68 | EP-OVERLAP-VPP (62), P2P-WARMUP-FLUSH (4), P2P-OVERLAP-AND-BATCH (2) | a layout string with two or more chunks per rank and no stated VPP. Bridge decides on EP overlap and on pipeline exchanges before it reads VPP from the string, and rejected the same layouts wherever VPP really was unstated; these 68 were run with VPP stated beside the string, which their options do not show |
| 1 | MOE-LAYER-FREQ | the length of a `moe_layer_freq` list is looked at when the layers are built, a stage that the Bridge run did not reach |

A verdict is not the whole story: rules of phase `runtime` are not part of it (`later` in
`check --batch`), as these layouts start and fail afterwards.
)";

}  // namespace moecast
