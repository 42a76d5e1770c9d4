// The kernels of one ISA, written once over the vector type V. A file of the ISA includes this after V, in
// its own namespace; the anonymous namespace separates the instances of different ISAs.

// Each file depends on those before it.
// clang-format off
#include "kernels/cpu/generic/kernel_math.inl"
#include "kernels/cpu/generic/kernel_rows.inl"
#include "kernels/cpu/generic/kernel_recurrence.inl"
#include "kernels/cpu/generic/iq_formats.inl"
#include "kernels/cpu/generic/kernel_quants.inl"
#include "kernels/cpu/generic/kernel_dot.inl"
#include "kernels/cpu/generic/kernel_softmax.inl"
#include "kernels/cpu/generic/kernel_attention.inl"
#include "kernels/cpu/generic/kernel_attention_few.inl"
#include "kernels/cpu/generic/kernel_decode_attention.inl"
// clang-format on

constexpr AttentionKernels kAttention = {AttendAny, MergeStates, ClearState, FinishRows, AddMass,
                                         nullptr,   0,           0,          false};
constexpr DecodeKernels kDecode = {AttendDecode, FinishDecode};

constexpr KernelTable kTable = {
    // clang-format off
    .dequantize = {CopyF32, WidenF16, WidenBf16, DequantizeBlocks<Q4_0>, DequantizeBlocks<Q4_1>,
                   DequantizeBlocks<Q5_0>, DequantizeBlocks<Q5_1>, DequantizeBlocks<Q8_0>,
                   DequantizeBlocks<Q2_K>, DequantizeBlocks<Q3_K>, DequantizeBlocks<Q4_K>,
                   DequantizeBlocks<Q5_K>, DequantizeBlocks<Q6_K>, DequantizeBlocks<IQ4_NL>,
                   DequantizeBlocks<MXFP4>, DequantizeBlocks<IQ4_XS>, DequantizeBlocks<IQ2_XXS>,
                   DequantizeBlocks<IQ2_XS>, DequantizeBlocks<IQ2_S>, DequantizeBlocks<IQ3_XXS>,
                   DequantizeBlocks<IQ3_S>},
    .steps = {nullptr, nullptr, nullptr, StepsOfBlocks<Q4_0>, StepsOfBlocks<Q4_1>, StepsOfBlocks<Q5_0>,
              StepsOfBlocks<Q5_1>, StepsOfBlocks<Q8_0>, nullptr, nullptr, StepsOfBlocks<Q4_K>,
              StepsOfBlocks<Q5_K>, nullptr, nullptr, StepsOfBlocks<MXFP4>, nullptr, nullptr, nullptr, nullptr,
              nullptr, StepsOfBlocks<IQ3_S>},
    .dot = {DotF32, DotF16, DotBf16, DotBlocks<Q4_0>, DotBlocks<Q4_1>, DotBlocks<Q5_0>, DotBlocks<Q5_1>,
            DotBlocks<Q8_0>, DotBlocks<Q2_K>, DotBlocks<Q3_K>, DotBlocks<Q4_K>, DotBlocks<Q5_K>,
            DotBlocks<Q6_K>, DotBlocks<IQ4_NL>, DotBlocks<MXFP4>, DotBlocks<IQ4_XS>, DotBlocks<IQ2_XXS>,
            DotBlocks<IQ2_XS>, DotBlocks<IQ2_S>, DotBlocks<IQ3_XXS>, DotBlocks<IQ3_S>},
    // clang-format on
    .stream = {nullptr, StreamNarrow<HalfWeights>, StreamNarrow<Bf16Weights>},
    .arrange = {nullptr, nullptr, ArrangePairs},
    .to_f16 = ToF16Row,
    .to_bf16 = ToBf16Row,
    .to_q8_0 = ToQ8Row,
    .rms_norm = RmsNorm,
    .layer_norm = LayerNorm,
    .rope = Rope,
    .gate_mul = {SiluMul, GeluMul, SwiGluOaiMul, SigmoidMul, PlainMul, ReluMul},
    .gelu = Gelu,
    .add = Add,
    .softmax = SoftmaxRow,
    .recurrence = {GatesOfRow, LengthFactors, RecurBlock<true>, RecurBlock<false>, ConvolveRow},
    .attention = kAttention,
    .attention_bf16 = kAttention,
    .attention_int8 = kAttention,
    .decode = kDecode,
    .decode_bf16 = kDecode,
};
