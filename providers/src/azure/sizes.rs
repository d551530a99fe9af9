//! What each GPU size is. The price API gives no GPU, and Azure's own `GPUs` capability has been
//! wrong (12 for `ND96isr_H100_v5`). Source: learn.microsoft.com/azure/virtual-machines/sizes,
//! read in November 2026. Sizes that are not here are rejected by name, never guessed.

/// Size (lower case, without `standard_`), model, GPUs as numerator and denominator, vCPUs, GiB.
type Size = (&'static str, &'static str, (u32, u32), u32, u32);

#[rustfmt::skip]
const SIZES: &[Size] = &[
    ("nc6", "k80", (1, 1), 6, 56),
    ("nc12", "k80", (2, 1), 12, 112),
    ("nc24", "k80", (4, 1), 24, 224),
    ("nc24r", "k80", (4, 1), 24, 224),
    ("nc6s_v2", "p100", (1, 1), 6, 112),
    ("nc12s_v2", "p100", (2, 1), 12, 224),
    ("nc24s_v2", "p100", (4, 1), 24, 448),
    ("nc24rs_v2", "p100", (4, 1), 24, 448),
    ("nc6s_v3", "v100-16g", (1, 1), 6, 112),
    ("nc12s_v3", "v100-16g", (2, 1), 12, 224),
    ("nc24s_v3", "v100-16g", (4, 1), 24, 448),
    ("nc24rs_v3", "v100-16g", (4, 1), 24, 448),
    ("nc4as_t4_v3", "t4", (1, 1), 4, 28),
    ("nc8as_t4_v3", "t4", (1, 1), 8, 56),
    ("nc16as_t4_v3", "t4", (1, 1), 16, 110),
    ("nc64as_t4_v3", "t4", (4, 1), 64, 440),
    ("nc24ads_a100_v4", "a100-80g", (1, 1), 24, 220),
    ("nc48ads_a100_v4", "a100-80g", (2, 1), 48, 440),
    ("nc96ads_a100_v4", "a100-80g", (4, 1), 96, 880),
    ("nc40ads_h100_v5", "h100-nvl-94g", (1, 1), 40, 320),
    ("nc80adis_h100_v5", "h100-nvl-94g", (2, 1), 80, 640),
    ("ncc40ads_h100_v5", "h100-nvl-94g", (1, 1), 40, 320),
    ("nd6s", "p40", (1, 1), 6, 112),
    ("nd12s", "p40", (2, 1), 12, 224),
    ("nd24s", "p40", (4, 1), 24, 448),
    ("nd24rs", "p40", (4, 1), 24, 448),
    ("nd40rs_v2", "v100-32g", (8, 1), 40, 672),
    ("nd96asr_v4", "a100-40g", (8, 1), 96, 900),
    ("nd96asr_a100_v4", "a100-40g", (8, 1), 96, 900),
    ("nd96ams_a100_v4", "a100-80g", (8, 1), 96, 1900),
    ("nd96amsr_a100_v4", "a100-80g", (8, 1), 96, 1900),
    ("nd96is_h100_v5", "h100-80g", (8, 1), 96, 1900),
    ("nd96isr_h100_v5", "h100-80g", (8, 1), 96, 1900),
    ("nd96is_h200_v5", "h200", (8, 1), 96, 1850),
    ("nd96isr_h200_v5", "h200", (8, 1), 96, 1850),
    ("nd96is_mi300x_v5", "mi300x", (8, 1), 96, 1850),
    ("nd96isr_mi300x_v5", "mi300x", (8, 1), 96, 1850),
    ("nd128isr_ndr_gb200_v6", "gb200", (4, 1), 128, 900),
    ("nd128isr_gb300_v6", "gb300", (4, 1), 128, 900),
    ("nv6", "m60", (1, 1), 6, 56),
    ("nv12", "m60", (2, 1), 12, 112),
    ("nv24", "m60", (4, 1), 24, 224),
    ("nv12s_v3", "m60", (1, 1), 12, 112),
    ("nv24s_v3", "m60", (2, 1), 24, 224),
    ("nv48s_v3", "m60", (4, 1), 48, 448),
    ("nv4as_v4", "mi25", (1, 8), 4, 14),
    ("nv8as_v4", "mi25", (1, 4), 8, 28),
    ("nv16as_v4", "mi25", (1, 2), 16, 56),
    ("nv32as_v4", "mi25", (1, 1), 32, 112),
    ("nv6ads_a10_v5", "a10", (1, 6), 6, 55),
    ("nv12ads_a10_v5", "a10", (1, 3), 12, 110),
    ("nv18ads_a10_v5", "a10", (1, 2), 18, 220),
    ("nv36ads_a10_v5", "a10", (1, 1), 36, 440),
    ("nv36adms_a10_v5", "a10", (1, 1), 36, 880),
    ("nv72ads_a10_v5", "a10", (2, 1), 72, 880),
    ("ng8ads_v620_v1", "v620", (1, 4), 8, 16),
    ("ng16ads_v620_v1", "v620", (1, 2), 16, 32),
    ("ng32ads_v620_v1", "v620", (1, 1), 32, 64),
    ("ng32adms_v620_v1", "v620", (1, 1), 32, 176),
];

/// The size of a SKU's name, whatever its letter case.
pub(super) fn size(sku: &str) -> Option<&'static Size> {
    let lower = sku.to_ascii_lowercase();
    let name = lower.strip_prefix("standard_")?;
    SIZES.iter().find(|size| size.0 == name)
}

/// Whether a SKU is of the N series and not one of those that carry an FPGA.
pub(super) fn has_gpu(sku: &str) -> bool {
    let lower = sku.to_ascii_lowercase();
    lower
        .strip_prefix("standard_")
        .is_some_and(|name| name.starts_with('n') && !name.starts_with("np"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use runwhere_model::{GpuCount, GpuModel};

    #[test]
    fn every_size_names_a_model_once() {
        let mut seen = std::collections::BTreeSet::new();
        for (name, model, (parts, of), ..) in SIZES {
            assert!(seen.insert(name), "{name} twice");
            assert_eq!(GpuModel::resolve(model).map(|m| m.id.as_str()), Some(*model), "{name}");
            assert!(GpuCount::fraction(*parts, *of).is_some());
        }
    }
}
