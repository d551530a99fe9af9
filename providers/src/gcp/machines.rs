//! Machine types with GPUs. Source: cloud.google.com/compute/docs/gpus and
//! /docs/accelerator-optimized-machines, read in November 2026.

use super::names::Component;

/// A machine type.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) name: &'static str,
    pub(super) model: &'static str,
    /// The SKU of its GPUs.
    pub(super) gpu: Component,
    pub(super) count: u32,
    pub(super) family: &'static str,
    pub(super) vcpus: u32,
    pub(super) gib: u32,
    pub(super) ssd_gib: u32,
    /// Whether it can be had on demand; some are spot, queued or reserved only.
    pub(super) on_demand: bool,
}

#[expect(clippy::too_many_arguments, reason = "a row of the table below")]
const fn machine(
    name: &'static str,
    model: &'static str,
    gpu: &'static str,
    count: u32,
    family: &'static str,
    vcpus: u32,
    gib: u32,
    ssd_gib: u32,
    on_demand: bool,
) -> Machine {
    Machine { name, model, gpu: Component::Gpu(gpu), count, family, vcpus, gib, ssd_gib, on_demand }
}

#[rustfmt::skip]
pub(super) const MACHINES: &[Machine] = &[
    machine("a2-highgpu-1g", "a100-40g", "a100-40g", 1, "a2", 12, 85, 0, true),
    machine("a2-highgpu-2g", "a100-40g", "a100-40g", 2, "a2", 24, 170, 0, true),
    machine("a2-highgpu-4g", "a100-40g", "a100-40g", 4, "a2", 48, 340, 0, true),
    machine("a2-highgpu-8g", "a100-40g", "a100-40g", 8, "a2", 96, 680, 0, true),
    machine("a2-megagpu-16g", "a100-40g", "a100-40g", 16, "a2", 96, 1360, 0, true),
    machine("a2-ultragpu-1g", "a100-80g", "a100-80g", 1, "a2", 12, 170, 375, true),
    machine("a2-ultragpu-2g", "a100-80g", "a100-80g", 2, "a2", 24, 340, 750, true),
    machine("a2-ultragpu-4g", "a100-80g", "a100-80g", 4, "a2", 48, 680, 1500, true),
    machine("a2-ultragpu-8g", "a100-80g", "a100-80g", 8, "a2", 96, 1360, 3000, true),
    machine("a3-highgpu-1g", "h100-80g", "h100-80g", 1, "a3", 26, 234, 750, false),
    machine("a3-highgpu-2g", "h100-80g", "h100-80g", 2, "a3", 52, 468, 1500, false),
    machine("a3-highgpu-4g", "h100-80g", "h100-80g", 4, "a3", 104, 936, 3000, false),
    machine("a3-highgpu-8g", "h100-80g", "h100-80g", 8, "a3", 208, 1872, 6000, true),
    machine("a3-megagpu-8g", "h100-80g", "h100-mega", 8, "a3-mega", 208, 1872, 6000, true),
    machine("a3-ultragpu-8g", "h200", "h200", 8, "a3-ultra", 224, 2952, 12000, false),
    Machine { name: "a4-highgpu-8g", model: "b200", gpu: Component::Slice("b200"), count: 8, family: "a4", vcpus: 224, gib: 3968, ssd_gib: 0, on_demand: false },
    machine("g2-standard-4", "l4", "l4", 1, "g2", 4, 16, 0, true),
    machine("g2-standard-8", "l4", "l4", 1, "g2", 8, 32, 0, true),
    machine("g2-standard-12", "l4", "l4", 1, "g2", 12, 48, 0, true),
    machine("g2-standard-16", "l4", "l4", 1, "g2", 16, 64, 0, true),
    machine("g2-standard-24", "l4", "l4", 2, "g2", 24, 96, 0, true),
    machine("g2-standard-32", "l4", "l4", 1, "g2", 32, 128, 0, true),
    machine("g2-standard-48", "l4", "l4", 4, "g2", 48, 192, 0, true),
    machine("g2-standard-96", "l4", "l4", 8, "g2", 96, 384, 0, true),
    machine("g4-standard-48", "rtx-pro-6000", "rtx-pro-6000", 1, "g4", 48, 180, 0, true),
    machine("g4-standard-96", "rtx-pro-6000", "rtx-pro-6000", 2, "g4", 96, 360, 0, true),
    machine("g4-standard-192", "rtx-pro-6000", "rtx-pro-6000", 4, "g4", 192, 720, 0, true),
    machine("g4-standard-384", "rtx-pro-6000", "rtx-pro-6000", 8, "g4", 384, 1440, 0, true),
];

#[cfg(test)]
mod tests {
    use super::*;
    use runwhere_model::GpuModel;

    #[test]
    fn every_machine_names_a_model_once() {
        let mut seen = std::collections::BTreeSet::new();
        for machine in MACHINES {
            assert!(seen.insert(machine.name));
            let model = GpuModel::resolve(machine.model).map(|model| model.id.as_str());
            assert_eq!(model, Some(machine.model));
        }
    }
}
