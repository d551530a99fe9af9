//! The table of models. Sources: the vendors' data sheets; names as the price routes use them.

use super::{GpuModel, GpuModelId, Vendor};

const fn model(
    id: &'static str,
    vendor: Vendor,
    name: &'static str,
    memory_gib: u32,
    aliases: &'static [&'static str],
) -> GpuModel {
    GpuModel { id: GpuModelId(id), vendor, name, memory_gib, aliases }
}

pub(super) static MODELS: &[GpuModel] = &[
    model(
        "a100-80g",
        Vendor::Nvidia,
        "NVIDIA A100-80GB",
        80,
        &["A100-80GB", "NVIDIA A100 80GB PCIe", "NVIDIA A100-SXM4-80GB"],
    ),
    model(
        "a100-40g",
        Vendor::Nvidia,
        "NVIDIA A100-40GB",
        40,
        &["A100-40GB", "NVIDIA A100-SXM4-40GB", "NVIDIA A100-PCIE-40GB"],
    ),
    model(
        "h100-80g",
        Vendor::Nvidia,
        "NVIDIA H100",
        80,
        &["H100", "H100-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA H100 PCIe"],
    ),
    model("l40s", Vendor::Nvidia, "NVIDIA L40S", 48, &["L40S"]),
    model("a10", Vendor::Nvidia, "NVIDIA A10", 24, &["A10"]),
    model("t4", Vendor::Nvidia, "NVIDIA T4", 16, &["T4", "Tesla T4"]),
];
