//! What a sheet says, in few words.

use runwhere_model::{Offer, OfferSheet};

pub(super) fn offer<'a>(sheet: &'a OfferSheet, key: &str) -> &'a Offer {
    sheet
        .offers
        .iter()
        .find(|offer| offer.key.to_string() == key)
        .unwrap_or_else(|| panic!("no {key} among {:#?}", keys(sheet)))
}

pub(super) fn keys(sheet: &OfferSheet) -> Vec<String> {
    sheet.offers.iter().map(|offer| offer.key.to_string()).collect()
}

/// `model count price stock`.
pub(super) fn told(offer: &Offer) -> String {
    let model = offer.gpu.map_or("-", |gpu| gpu.as_str());
    let price = offer.price.state.known().map_or("unknown".to_owned(), |p| p.to_string());
    let stock = serde_json::to_value(offer.stock).unwrap();
    format!("{model} {} {price} {}", offer.gpu_count, stock.as_str().unwrap())
}

pub(super) fn rejected(sheet: &OfferSheet) -> Vec<(&str, &str)> {
    sheet.rejected.iter().map(|row| (row.row.as_str(), row.reason.as_str())).collect()
}
