//! What a family's accelerators are. The price files count GPUs and do not name them; with an
//! account the interface's own word goes before this table. Source: aws.amazon.com/ec2/instance-types,
//! read in November 2026.

use runwhere_model::{GpuCount, GpuModel, GpuModelId};

/// Family, model, name as EC2 writes it.
const FAMILIES: &[(&str, &str, &str)] = &[
    ("dl1", "gaudi", "Gaudi HL-205"),
    ("g3", "m60", "M60"),
    ("g3s", "m60", "M60"),
    ("g4ad", "v520", "Radeon Pro V520"),
    ("g4dn", "t4", "T4"),
    ("g5", "a10g", "A10G"),
    ("g5g", "t4g", "T4g"),
    ("g6", "l4", "L4"),
    ("g6e", "l40s", "L40S"),
    ("g6f", "l4", "L4"),
    ("g7e", "rtx-pro-6000", "RTX PRO Server 6000"),
    ("gr6", "l4", "L4"),
    ("gr6f", "l4", "L4"),
    ("inf1", "inferentia", "Inferentia"),
    ("inf2", "inferentia2", "Inferentia2"),
    ("p2", "k80", "K80"),
    ("p3", "v100-16g", "V100"),
    ("p3dn", "v100-32g", "V100"),
    ("p4d", "a100-40g", "A100"),
    ("p4de", "a100-80g", "A100"),
    ("p5", "h100-80g", "H100"),
    ("p5e", "h200", "H200"),
    ("p5en", "h200", "H200"),
    ("p6-b200", "b200", "B200"),
    ("p6-b300", "b300", "B300"),
    ("trn1", "trainium", "Trainium"),
    ("trn1n", "trainium", "Trainium"),
    ("trn2", "trainium2", "Trainium2"),
];

/// Counts that the files do not state, or state as 0 or 1 where it is a share.
const COUNTS: &[(&str, u32, u32)] = &[
    ("dl1.24xlarge", 8, 1),
    ("g6f.large", 1, 8),
    ("g6f.xlarge", 1, 8),
    ("g6f.2xlarge", 1, 4),
    ("g6f.4xlarge", 1, 2),
    ("gr6f.4xlarge", 1, 2),
    ("inf1.xlarge", 1, 1),
    ("inf1.2xlarge", 1, 1),
    ("inf1.6xlarge", 4, 1),
    ("inf1.24xlarge", 16, 1),
    ("inf2.xlarge", 1, 1),
    ("inf2.8xlarge", 1, 1),
    ("inf2.24xlarge", 6, 1),
    ("inf2.48xlarge", 12, 1),
    ("trn1.2xlarge", 1, 1),
    ("trn1.32xlarge", 16, 1),
    ("trn1n.32xlarge", 16, 1),
    ("trn2.48xlarge", 16, 1),
];

/// Model and raw name of a type's family.
pub(crate) fn family(instance_type: &str) -> Option<(GpuModelId, &'static str)> {
    let (family, _) = instance_type.split_once('.')?;
    let (_, model, raw) = FAMILIES.iter().find(|(name, ..)| *name == family)?;
    Some((GpuModel::resolve(model)?.id, raw))
}

/// A count that the table knows better than the file.
pub(crate) fn count(instance_type: &str) -> Option<GpuCount> {
    let (_, parts, of) = COUNTS.iter().find(|(name, ..)| *name == instance_type)?;
    GpuCount::fraction(*parts, *of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_names_a_model() {
        for (name, model, _) in FAMILIES {
            assert_eq!(GpuModel::resolve(model).map(|m| m.id.as_str()), Some(*model), "{name}");
        }
        for (name, ..) in COUNTS {
            assert!(family(name).is_some() && count(name).is_some(), "{name}");
        }
        assert_eq!(family("m5.large"), None);
    }
}
