//! The euro foreign exchange reference rates of the European Central Bank.
//!
//! They go one way, from the euro, and are used that way only: a price in another currency is not
//! converted by turning two of them round.

use jiff::civil::Date;
use runwhere_model::{Currency, parse_decimal};
use rust_decimal::Decimal;

use crate::fx::FxRate;

/// Where the rates of the last working day are published.
pub const ECB_DAILY: &str = "https://www.ecb.europa.eu/stats/eurofxref/eurofxref-daily.xml";
/// Who states them.
pub const ECB_SOURCE: &str = "ECB euro foreign exchange reference rate";

/// Why a document holds no rates.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EcbError {
    /// Another document, such as an error page.
    #[error("not the daily reference rates of the ECB: {0}")]
    Document(&'static str),
    /// A rate that cannot be used.
    #[error("the rate for {0} is not a positive decimal")]
    Rate(String),
}

/// Reads the daily document: rates from the euro to every currency that is known here.
pub fn read_ecb(document: &str) -> Result<Vec<FxRate>, EcbError> {
    if !document.contains("eurofxref") {
        return Err(EcbError::Document("it does not name them"));
    }
    let mut date: Option<Date> = None;
    let mut rates = Vec::new();
    for tag in document.split('<').filter_map(|part| part.strip_prefix("Cube")) {
        let tag = tag.split('>').next().unwrap_or("");
        if let Some(time) = attribute(tag, "time") {
            if date.is_some() {
                return Err(EcbError::Document("it has several days"));
            }
            date = Some(time.parse().map_err(|_| EcbError::Document("its day is no date"))?);
        }
        let (Some(code), Some(rate)) = (attribute(tag, "currency"), attribute(tag, "rate")) else {
            continue;
        };
        // Currencies that this program does not know are nothing it could convert.
        let Ok(to) = code.parse::<Currency>() else { continue };
        let rate = parse_decimal(rate).ok().filter(|rate| *rate > Decimal::ZERO);
        let rate = rate.ok_or_else(|| EcbError::Rate(to.to_string()))?;
        let date = date.ok_or(EcbError::Document("it has no day"))?;
        let source = ECB_SOURCE.to_owned();
        rates.push(FxRate { from: Currency::EUR, to, rate, date, source });
    }
    match rates.is_empty() {
        true => Err(EcbError::Document("it has no rates")),
        false => Ok(rates),
    }
}

fn attribute<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let after = tag.split_once(&format!(" {name}="))?.1;
    let quote = after.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    after[1..].split_once(quote).map(|(value, _)| value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAILY: &str = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<gesmes:Envelope xmlns:gesmes=\"http://www.gesmes.org/xml/2002-08-01\" xmlns=\"http://www.ecb.int/vocabulary/2002-08-01/eurofxref\">\n<gesmes:subject>Reference rates</gesmes:subject>\n<Cube>\n<Cube time='2026-09-24'>\n<Cube currency='USD' rate='1.1306'/>\n<Cube currency='CNY' rate='7.6302'/>\n<Cube currency='XQQ' rate='3'/>\n</Cube>\n</Cube>\n</gesmes:Envelope>";

    #[test]
    fn the_daily_document_is_read_one_way() {
        let rates = read_ecb(DAILY).unwrap();
        let told: Vec<String> =
            rates.iter().map(|r| format!("{} {} {} {}", r.from, r.to, r.rate, r.date)).collect();
        assert_eq!(told, ["EUR USD 1.1306 2026-09-24", "EUR CNY 7.6302 2026-09-24"]);
    }

    #[test]
    fn other_documents_are_refused() {
        for bad in [
            "",
            "<html>eurofxref</html>",
            &DAILY.replace("7.6302", "7,63"),
            &DAILY.replace("7.6302", "0"),
            &DAILY.replace("2026-09-24", "yesterday"),
            &DAILY.replace("<Cube time='2026-09-24'>", ""),
        ] {
            assert!(read_ecb(bad).is_err(), "{bad}");
        }
    }
}
