//! What a type's GPUs are: from the interface's words, or from the name where only that is known.

use runwhere_model::{GpuCount, GpuModel, GpuModelId};

use super::wire::InstanceType;
use crate::sources::{gib_to_mib, one_gpu_mib, whole};

/// A type with GPUs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct GpuType {
    pub(super) id: String,
    pub(super) raw: String,
    pub(super) model: Option<GpuModelId>,
    pub(super) count: GpuCount,
    pub(super) gpu_memory_mib: Option<u64>,
    pub(super) vcpus: Option<u32>,
    pub(super) memory_mib: Option<u64>,
}

/// Reads a type; `None` where it has no GPU.
pub(super) fn read(row: &InstanceType) -> Result<Option<GpuType>, String> {
    if row.id.is_empty() {
        return Err("the row names no type".to_owned());
    }
    let raw = row.gpu.clone().unwrap_or_default();
    let amount = row.gpus.as_ref().and_then(whole).unwrap_or(0);
    if amount == 0 && raw.is_empty() {
        return Ok(None);
    }
    let stated = row.gpu_memory_gib.as_ref().and_then(gib_to_mib);
    let (count, memory) = if is_share(&row.id) {
        // The memory is that of the share.
        let model = GpuModel::named(&raw, None).ok_or("a share of a GPU that is not known")?;
        let share = stated.ok_or("a share of a GPU without its memory")?;
        let one = u64::from(model.memory_gib) * 1024;
        (share_of(share, one).ok_or_else(|| format!("{share} MiB are no share of {one} MiB"))?, one)
    } else {
        let count = GpuCount::whole(amount).ok_or("it states no number of GPUs")?;
        // That of one, for some types that of all.
        (count, stated.map_or(0, |mib| one_gpu_mib(mib, count, &raw)))
    };
    let memory = (memory > 0).then_some(memory);
    Ok(Some(GpuType {
        model: GpuModel::named(&raw, memory).map(|model| model.id),
        id: row.id.clone(),
        raw,
        count,
        gpu_memory_mib: memory,
        vcpus: row.cores.as_ref().and_then(whole),
        memory_mib: row.memory_gib.as_ref().and_then(gib_to_mib),
    }))
}

/// Families whose types have a part of a GPU.
fn is_share(id: &str) -> bool {
    let family = id.strip_prefix("ecs.").unwrap_or(id);
    family.starts_with("vgn") || family.starts_with("sgn")
}

/// A share as one of so many equal parts.
fn share_of(share_mib: u64, one_mib: u64) -> Option<GpuCount> {
    let parts = one_mib.checked_div(share_mib)?;
    (parts * share_mib == one_mib).then(|| GpuCount::fraction(1, u32::try_from(parts).ok()?))?
}

/// Families by name, longest first where one begins another. Source:
/// help.aliyun.com/zh/ecs/user-guide/overview-of-instance-families, read in November 2026.
const FAMILIES: [(&str, &str, &str); 7] = [
    ("gn5", "p100", "NVIDIA P100"),
    ("gn6e", "v100-32g", "NVIDIA V100"),
    ("gn6i", "t4", "NVIDIA T4"),
    ("gn6v", "v100-16g", "NVIDIA V100"),
    ("gn7", "a100-40g", "NVIDIA A100"),
    ("gn7e", "a100-80g", "NVIDIA A100"),
    ("gn7i", "a10", "NVIDIA A10"),
];

/// Bare metal: the number of GPUs is not in the name.
const METAL: [(&str, u32); 6] = [
    ("ecs.ebmgn6e.24xlarge", 8),
    ("ecs.ebmgn6i.24xlarge", 4),
    ("ecs.ebmgn6v.24xlarge", 8),
    ("ecs.ebmgn7.26xlarge", 8),
    ("ecs.ebmgn7e.32xlarge", 8),
    ("ecs.ebmgn7i.32xlarge", 4),
];

/// What a type's name tells: `ecs.gn7i-c32g1.32xlarge` has one GPU for each 32 vCPUs, and 128 of
/// these. `None` where the name has no GPU; the reason where it has and does not tell which.
pub(super) fn named(id: &str) -> Result<Option<GpuType>, String> {
    let Some(rest) = id.strip_prefix("ecs.") else { return Ok(None) };
    let (head, size) = rest.split_once('.').ok_or("the type's name has no size")?;
    let (family, shape) = head.split_once('-').unwrap_or((head, ""));
    let bare = family.strip_prefix("ebm").unwrap_or(family);
    if !["gn", "vgn", "sgn"].iter().any(|gpu| bare.starts_with(gpu)) {
        return Ok(None);
    }
    if is_share(id) {
        return Err("a share of a GPU; its size is not in the name".to_owned());
    }
    let Some((_, model, raw)) = FAMILIES.iter().find(|(name, ..)| *name == bare) else {
        return Err(format!("the GPU of the family {family} is not known by its name"));
    };
    let vcpus = xlarges(size).map(|count| count * 4);
    let count = match METAL.iter().find(|(name, _)| *name == id) {
        Some((_, count)) => Some(*count),
        None => gpus(shape, vcpus),
    };
    let count = count.and_then(GpuCount::whole).ok_or("its name does not tell its GPUs")?;
    let model = GpuModel::resolve(model);
    Ok(Some(GpuType {
        id: id.to_owned(),
        raw: (*raw).to_owned(),
        model: model.map(|model| model.id),
        count,
        gpu_memory_mib: model.map(|model| u64::from(model.memory_gib) * 1024),
        vcpus,
        memory_mib: None,
    }))
}

/// `xlarge` is one, `16xlarge` sixteen.
fn xlarges(size: &str) -> Option<u32> {
    match size.strip_suffix("xlarge")? {
        "" => Some(1),
        number => number.parse().ok(),
    }
}

/// `c32g1` with 128 vCPUs is four.
fn gpus(shape: &str, vcpus: Option<u32>) -> Option<u32> {
    let (cores, gpus) = shape.strip_prefix('c')?.split_once('g')?;
    let (cores, gpus): (u32, u32) = (cores.parse().ok()?, gpus.parse().ok()?);
    let times = vcpus?.checked_div(cores)?;
    (times * cores == vcpus?).then_some(times * gpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_tell_their_gpus_or_say_that_they_do_not() {
        let told = |id: &str| {
            named(id).map(|kind| kind.map(|k| format!("{} {}", k.model.unwrap(), k.count)))
        };
        for (id, want) in [
            ("ecs.gn7i-c8g1.2xlarge", "a10 1"),
            ("ecs.gn7i-c32g1.32xlarge", "a10 4"),
            ("ecs.gn6i-c4g1.xlarge", "t4 1"),
            ("ecs.gn6i-c24g1.24xlarge", "t4 4"),
            ("ecs.gn6v-c8g1.16xlarge", "v100-16g 8"),
            ("ecs.gn6e-c12g1.12xlarge", "v100-32g 4"),
            ("ecs.gn7e-c16g1.4xlarge", "a100-80g 1"),
            ("ecs.ebmgn7e.32xlarge", "a100-80g 8"),
        ] {
            assert_eq!(told(id), Ok(Some(want.to_owned())), "{id}");
        }
        assert_eq!(told("ecs.g7.xlarge"), Ok(None));
        for odd in ["ecs.gn9z-c8g1.2xlarge", "ecs.sgn7i-vws-m2.xlarge", "ecs.gn7i-2x.8xlarge"] {
            assert!(told(odd).is_err(), "{odd}");
        }
    }
}
