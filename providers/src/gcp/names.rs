//! From a SKU's text to what it is a price of. The text is the only link, and Google has changed its
//! words before: `Preemptible` became `Spot Preemptible`, `Mega` is also `Plus`.

/// A part of a machine.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Component {
    /// A vCPU of a family, an hour.
    Core(&'static str),
    /// A GiB of memory of a family, an hour.
    Memory(&'static str),
    /// A GPU, an hour.
    Gpu(&'static str),
    /// A GPU with its share of everything else, an hour.
    Slice(&'static str),
    /// A GiB of local SSD, a month.
    LocalSsd,
}

/// What a SKU's text names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Named {
    pub(super) component: Component,
    pub(super) spot: bool,
}

/// Words of prices of something else: commitments, reservations, queued capacity, other tenancy.
const OTHERS: [&str; 11] = [
    "Commitment",
    "Committed",
    "Reserved",
    "Sole Tenancy",
    "Custom",
    "Premium",
    "DWS",
    "Defined Duration",
    "Calendar Mode",
    "Flex Start",
    "suspended",
];

const GPUS: [(&str, Component); 12] = [
    ("Nvidia L4 GPU", Component::Gpu("l4")),
    ("Nvidia Tesla A100 GPU", Component::Gpu("a100-40g")),
    ("Nvidia Tesla A100 80GB GPU", Component::Gpu("a100-80g")),
    ("Nvidia H100 80GB GPU", Component::Gpu("h100-80g")),
    ("Nvidia H100 80GB Mega GPU", Component::Gpu("h100-mega")),
    ("Nvidia H100 80GB Plus GPU", Component::Gpu("h100-mega")),
    ("H100 80GB Mega GPU", Component::Gpu("h100-mega")),
    ("H100 80GB Plus GPU", Component::Gpu("h100-mega")),
    ("Nvidia H200 141GB GPU", Component::Gpu("h200")),
    ("H200 141GB GPU", Component::Gpu("h200")),
    ("A4 Nvidia B200 (1 gpu slice)", Component::Slice("b200")),
    ("RTX 6000 96GB GPU", Component::Gpu("rtx-pro-6000")),
];

const FAMILIES: [(&str, &str); 9] = [
    ("A2 Instance", "a2"),
    ("A3 Instance", "a3"),
    ("A3Plus Instance", "a3-mega"),
    ("A3 Plus Instance", "a3-mega"),
    ("A3 Mega Instance", "a3-mega"),
    ("A3Ultra Instance", "a3-ultra"),
    ("A3 Ultra Instance", "a3-ultra"),
    ("G2 Instance", "g2"),
    ("G4 Instance", "g4"),
];

/// What a text names. `Ok(None)` = of no machine with a GPU; the reason for a GPU that nobody knows.
pub(super) fn named(text: &str, usage: &str) -> Result<Option<Named>, String> {
    if !matches!(usage, "OnDemand" | "Preemptible") || OTHERS.iter().any(|word| text.contains(word))
    {
        return Ok(None);
    }
    let mut rest = text.trim();
    let mut spot = usage == "Preemptible";
    for word in ["Spot Preemptible ", "Preemptible ", "Spot "] {
        if let Some(bare) = rest.strip_prefix(word) {
            // The text counts: the usage type of some spot SKUs says on demand.
            (rest, spot) = (bare, true);
            break;
        }
    }
    let what = ["running in", "attached to", " in "]
        .iter()
        .fold(rest, |rest, word| rest.split(word).next().unwrap_or(rest))
        .trim();
    let component = if what.eq_ignore_ascii_case("SSD backed Local Storage") {
        spot |= text.contains("Preemptible");
        Some(Component::LocalSsd)
    } else {
        gpu(what).or_else(|| part(what))
    };
    match component {
        Some(component) => Ok(Some(Named { component, spot })),
        None if what.to_lowercase().contains(" gpu") => {
            Err("its text names a GPU that is not known".to_owned())
        }
        None => Ok(None),
    }
}

fn gpu(what: &str) -> Option<Component> {
    GPUS.iter().find(|(name, _)| name.eq_ignore_ascii_case(what)).map(|(_, component)| *component)
}

fn part(what: &str) -> Option<Component> {
    let (family, part) = what.rsplit_once(' ')?;
    let (_, family) = FAMILIES.iter().find(|(name, _)| name.eq_ignore_ascii_case(family))?;
    match part {
        "Core" => Some(Component::Core(family)),
        "Ram" | "RAM" => Some(Component::Memory(family)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_old_and_new() {
        let told =
            |text: &str, usage: &str| named(text, usage).map(|n| n.map(|n| (n.component, n.spot)));
        for (text, usage, want) in [
            (
                "Nvidia Tesla A100 GPU running in Americas",
                "OnDemand",
                (Component::Gpu("a100-40g"), false),
            ),
            (
                "Spot Preemptible Nvidia L4 GPU running in Tokyo",
                "Preemptible",
                (Component::Gpu("l4"), true),
            ),
            (
                "Preemptible A2 Instance Core running in Iowa",
                "Preemptible",
                (Component::Core("a2"), true),
            ),
            // Both words (no. 22).
            (
                "Nvidia H100 80GB Mega GPU running in Iowa",
                "OnDemand",
                (Component::Gpu("h100-mega"), false),
            ),
            (
                "Nvidia H100 80GB Plus GPU running in Iowa",
                "OnDemand",
                (Component::Gpu("h100-mega"), false),
            ),
            // A spot SKU whose usage type says on demand.
            (
                "Spot Preemptible A4 Nvidia B200 (1 gpu slice) running in Iowa",
                "OnDemand",
                (Component::Slice("b200"), true),
            ),
            ("SSD backed Local Storage", "OnDemand", (Component::LocalSsd, false)),
            (
                "SSD backed Local Storage attached to Spot Preemptible VMs in Tokyo",
                "Preemptible",
                (Component::LocalSsd, true),
            ),
        ] {
            assert_eq!(told(text, usage), Ok(Some(want)), "{text}");
        }
        for other in [
            "Commitment v1: A2 Cpu in Americas",
            "Nvidia H100 80GB GPU Defined Duration running in Iowa",
            "DWS Calendar Mode A4 Nvidia B200 (1 gpu slice) running in Iowa",
            "Reserved Nvidia L4 GPU in Tokyo",
            "N2 Instance Core running in Iowa",
        ] {
            assert_eq!(told(other, "OnDemand"), Ok(None), "{other}");
        }
        assert!(named("Nvidia R100 288GB GPU running in Iowa", "OnDemand").is_err());
    }
}
