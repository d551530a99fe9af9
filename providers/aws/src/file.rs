//! A region's price file: read through line by line, cut to the rows of accelerators, then mapped.

use std::collections::HashMap;

use jiff::Timestamp;
use jiff::civil::Date;
use jiff::tz::Offset;
use runwhere_model::{BillingModel, Currency, GpuCount, PriceState, parse_decimal};
use runwhere_providers::http::Extract;

use crate::csv::{Lines, cells};
use crate::families;

/// Name of this extract in the cache: another way to cut needs another name.
pub(crate) const EXTRACT: &str = "gpu-rows-1";
/// Lines before the header.
const PREFACE: usize = 5;

/// Keeps preface, header and the rows of accelerators, of all forms.
#[derive(Debug, Default)]
pub(crate) struct GpuRows {
    lines: Lines,
    seen: usize,
    instance_type: Option<usize>,
    gpu: Option<usize>,
    kept: Vec<u8>,
}

impl GpuRows {
    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        self.seen += 1;
        let text = std::str::from_utf8(line).map_err(|_| "not UTF-8".to_owned())?;
        if self.seen <= PREFACE {
            if self.seen == 1 && !text.starts_with("\"FormatVersion\"") {
                return Err("it does not begin like a price file".to_owned());
            }
        } else if self.seen == PREFACE + 1 {
            let names = cells(text);
            let at = |name: &str| names.iter().position(|cell| cell == name);
            self.instance_type = at("Instance Type");
            self.gpu = at("GPU");
            if self.instance_type.is_none() {
                return Err("it has no column Instance Type".to_owned());
            }
        } else if !self.of_accelerator(text) {
            return Ok(());
        }
        self.kept.extend_from_slice(line);
        self.kept.push(b'\n');
        Ok(())
    }

    fn of_accelerator(&self, text: &str) -> bool {
        // Most rows are of other terms: not worth cutting into cells.
        if !text.contains("\"OnDemand\"") {
            return false;
        }
        let row = cells(text);
        let cell = |at: Option<usize>| at.and_then(|at| row.get(at)).map_or("", String::as_str);
        families::family(cell(self.instance_type)).is_some()
            || !matches!(cell(self.gpu), "" | "NA" | "0")
    }
}

impl Extract for GpuRows {
    fn feed(&mut self, chunk: &[u8]) -> Result<(), String> {
        let mut lines = std::mem::take(&mut self.lines);
        let fed = lines.feed(chunk, |line| self.line(line));
        self.lines = lines;
        fed
    }

    fn finish(&mut self) -> Result<Vec<u8>, String> {
        let rest = self.lines.rest()?;
        if !rest.is_empty() {
            self.line(&rest)?;
        }
        if self.seen <= PREFACE {
            return Err("it ends before its header".to_owned());
        }
        Ok(std::mem::take(&mut self.kept))
    }
}

/// A row of the file that is a price of an accelerator type.
#[derive(Clone, Debug)]
pub(crate) struct Priced {
    pub(crate) instance_type: String,
    pub(crate) billing: BillingModel,
    pub(crate) price: PriceState,
    pub(crate) effective_at: Option<Timestamp>,
    /// GPUs as the file counts them.
    pub(crate) count: Option<GpuCount>,
    pub(crate) vcpus: Option<u32>,
    pub(crate) memory_mib: Option<u64>,
}

/// Rows with the reasons of those that do not fit.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) priced: Vec<Priced>,
    pub(crate) rejected: Vec<(String, String)>,
}

/// Reads an extract. Rows of other software, tenancies and reservations are no prices of machines
/// with Linux and are left out; everything else becomes a price or is rejected.
pub(crate) fn read(extract: &str, region: &str, currency: Currency) -> Result<Read, String> {
    let mut all = Vec::new();
    let mut lines = Lines::default();
    lines.feed(extract.as_bytes(), |line| {
        all.push(String::from_utf8_lossy(line).into_owned());
        Ok(())
    })?;
    let mut lines = all.into_iter().skip(PREFACE);
    let header = cells(&lines.next().ok_or("it has no header")?);
    let columns: HashMap<&str, usize> =
        header.iter().enumerate().map(|(at, name)| (name.as_str(), at)).collect();
    for needed in ["Instance Type", "PricePerUnit", "Currency", "Operating System", "MarketOption"]
    {
        if !columns.contains_key(needed) {
            return Err(format!("it has no column {needed}"));
        }
    }
    let mut read = Read::default();
    for line in lines.filter(|line| !line.is_empty()) {
        let row = cells(&line);
        let cell = |name: &str| {
            columns.get(name).and_then(|at| row.get(*at)).map_or("", |cell| cell.trim())
        };
        match priced(&cell, region, currency) {
            Ok(Some(price)) => read.priced.push(price),
            Ok(None) => {}
            Err(reason) => read.rejected.push((cell("Instance Type").to_owned(), reason)),
        }
    }
    Ok(read)
}

fn priced<'a>(
    cell: &dyn Fn(&str) -> &'a str,
    region: &str,
    currency: Currency,
) -> Result<Option<Priced>, String> {
    let instance_type = cell("Instance Type");
    if cell("TermType") != "OnDemand" || !instance_type.contains('.') {
        return Ok(None);
    }
    let Some(billing) = form(cell)? else { return Ok(None) };
    if cell("Unit") != "Hrs" {
        return Err(format!("its unit is {}, not Hrs", cell("Unit")));
    }
    let code = cell("Region Code");
    if !code.is_empty() && code != region {
        return Err(format!("of region {code} in the file of {region}"));
    }
    let stated: Currency = cell("Currency").parse().map_err(|_| "no currency".to_owned())?;
    if stated != currency {
        return Err(format!("in {stated}; this partition's prices are in {currency}"));
    }
    let amount = parse_decimal(cell("PricePerUnit"))
        .map_err(|error| format!("price {}: {error}", cell("PricePerUnit")))?;
    if amount.is_sign_negative() {
        return Err(format!("the price {amount} is negative"));
    }
    let price = match amount.is_zero() {
        true => PriceState::Unknown,
        false => PriceState::Known { price: runwhere_model::HourlyPrice { amount, currency } },
    };
    Ok(Some(Priced {
        instance_type: instance_type.to_owned(),
        billing,
        price,
        effective_at: date(cell("EffectiveDate")),
        count: cell("GPU").parse().ok(),
        vcpus: cell("vCPU").parse().ok(),
        memory_mib: memory(cell("Memory")),
    }))
}

/// Which form of rent a row is the price of; `None` = of another software or a reservation.
fn form<'a>(cell: &dyn Fn(&str) -> &'a str) -> Result<Option<BillingModel>, String> {
    if !matches!(cell("CapacityStatus"), "Used" | "")
        || !matches!(cell("Pre Installed S/W"), "NA" | "")
        || cell("License Model") == "Bring your own license"
    {
        return Ok(None);
    }
    let windows = match cell("Operating System") {
        "Linux" => false,
        "Windows" => true,
        _ => return Ok(None),
    };
    match cell("MarketOption") {
        "OnDemand" => {}
        // A block of time in the future: its rows show a fraction of a real price.
        "CapacityBlock" => return Ok(Some(BillingModel::CapacityBlock)),
        other => return Err(format!("its market option is {other:?}")),
    }
    Ok(match (cell("Tenancy"), windows) {
        ("Shared", false) => Some(BillingModel::OnDemand),
        ("Shared", true) => Some(BillingModel::Windows),
        ("Dedicated", false) => Some(BillingModel::DedicatedHost),
        _ => None,
    })
}

/// `2026-11-01`, also with a time.
fn date(text: &str) -> Option<Timestamp> {
    let day: Date = text.get(..10)?.parse().ok()?;
    Offset::UTC.to_timestamp(day.at(0, 0, 0, 0)).ok()
}

/// `1,152 GiB`.
fn memory(text: &str) -> Option<u64> {
    let number = text.strip_suffix("GiB")?.trim().replace(',', "");
    let mib = parse_decimal(&number).ok()?.checked_mul(1024.into())?;
    u64::try_from(mib.trunc()).ok().filter(|mib| *mib > 0)
}
