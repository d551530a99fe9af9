//! One reading of an account: types once, then region by region.

use std::collections::{BTreeMap, BTreeSet};

use runwhere_model::{OfferScope, OfferSheet, ProviderError, Stock};

use super::client::{Aliyun, BSS, ECS};
use super::map::{self, RegionFacts, ZoneStock};
use super::types::{self, GpuType};
use super::wire::{PriceAnswer, Regions, Resources, SkuAnswer, SpotHistory, TypePage};
use crate::http::{Failure, Pages, Session};
use crate::provider::{OfferSource, Result};
use crate::sources::{RegionsRead, SheetBuilder, wanted, whole};

struct Reading<'a> {
    source: &'a Aliyun,
    session: Session<'a>,
    types: BTreeMap<String, GpuType>,
}

/// Reads what an account's interfaces tell.
pub(super) async fn account(source: &Aliyun, scope: &OfferScope) -> Result<OfferSheet> {
    let mut sheet =
        SheetBuilder::new(source.id().clone(), "Aliyun ECS and BSS interfaces", source.http.now());
    let session = source.http.session();
    let mut reading = Reading { source, session, types: BTreeMap::new() };
    let mut all = wanted(scope, &source.settings.regions).to_vec();
    if all.is_empty() {
        all = reading.regions().await?;
    }
    reading.read_types(&mut sheet).await?;
    let mut regions = RegionsRead::default();
    for region in &all {
        let read = reading.region(region, &mut sheet).await;
        if let Some(facts) = regions.note(region, read, &mut sheet) {
            map::region(region, &reading.types, &facts, &mut sheet);
        }
    }
    regions.finish(sheet)
}

fn ecs_host(region: &str) -> String {
    format!("ecs.{region}.aliyuncs.com")
}

impl Reading<'_> {
    async fn regions(&self) -> Result<Vec<String>> {
        let host = ecs_host(self.source.site().home());
        let answer: Regions =
            self.source.call(&self.session, &host, ECS, "DescribeRegions", &[]).await?;
        let regions: Vec<String> =
            answer.regions.region.into_iter().map(|region| region.region_id).collect();
        match regions.is_empty() {
            true => Err(self.session.malformed("DescribeRegions", "no region at all")),
            false => Ok(regions),
        }
    }

    async fn read_types(&mut self, sheet: &mut SheetBuilder) -> Result<()> {
        const CALL: &str = "DescribeInstanceTypes";
        let host = ecs_host(self.source.site().home());
        let mut pages = Pages::at_most(500);
        let mut token = String::new();
        loop {
            pages.turn_to(&token).map_err(|reason| self.session.malformed(CALL, reason))?;
            let mut query = vec![("MaxResults", "100")];
            if !token.is_empty() {
                query.push(("NextToken", &token));
            }
            let page: TypePage = self.source.call(&self.session, &host, ECS, CALL, &query).await?;
            for row in page.instance_types.instance_type {
                let Some(row) = sheet.read(row) else { continue };
                match types::read(&row) {
                    Ok(Some(kind)) => {
                        self.types.insert(kind.id.clone(), kind);
                    }
                    Ok(None) => {}
                    Err(reason) => sheet.reject(row.id, reason),
                }
            }
            match page.next_token.filter(|next| !next.is_empty()) {
                Some(next) => token = next,
                None => break,
            }
        }
        match self.types.is_empty() {
            true => Err(self.session.malformed(CALL, "no GPU type at all")),
            false => Ok(()),
        }
    }

    async fn region(&self, region: &str, sheet: &mut SheetBuilder) -> Result<RegionFacts> {
        let mut facts = RegionFacts { list: self.list(region, sheet).await?, ..Default::default() };
        match self.stock(region, false).await {
            Ok(stock) => facts.stock = Some(stock),
            Err(error) => sheet.failed(format!("stock in {region}"), &error),
        }
        if self.source.settings.account_prices {
            self.own_prices(region, &mut facts, sheet).await;
        }
        if self.source.settings.spot {
            match self.stock(region, true).await {
                Ok(stock) => {
                    self.spot(region, &stock, &mut facts, sheet).await;
                    facts.spot_stock = Some(stock);
                }
                Err(error) => sheet.failed(format!("spot in {region}"), &error),
            }
        }
        Ok(facts)
    }

    /// List prices of the region's GPU types.
    async fn list(
        &self,
        region: &str,
        sheet: &mut SheetBuilder,
    ) -> Result<BTreeMap<String, runwhere_model::PriceState>> {
        const CALL: &str = "QuerySkuPriceList";
        let site = self.source.site();
        let factors = serde_json::json!({
            "vm_os_kind": ["linux"],
            "vm_region_no": map::price_names(region),
        })
        .to_string();
        let mut list = BTreeMap::new();
        let mut pages = Pages::at_most(2_000);
        let mut token = String::new();
        loop {
            pages.turn_to(&token).map_err(|reason| self.session.malformed(CALL, reason))?;
            let mut query = vec![
                ("CommodityCode", site.commodity()),
                ("PriceEntityCode", "instance_type"),
                ("PageSize", "50"),
                ("PriceFactorConditionMap", &factors),
                ("Lang", "en"),
            ];
            if !token.is_empty() {
                query.push(("NextPageToken", &token));
            }
            let answer: SkuAnswer =
                self.source.call(&self.session, site.billing_host(), BSS, CALL, &query).await?;
            let page = answer.data.sku_price_page;
            for row in page.sku_price_list {
                let Some(sku) = sheet.read(row) else { continue };
                let id = sku.sku_factor_map.get("instance_type").cloned().unwrap_or_default();
                if !id.is_empty() && !self.types.contains_key(&id) {
                    continue;
                }
                match map::sku(&sku, region, site.currency()) {
                    Ok((id, price)) => {
                        list.insert(id, price);
                    }
                    Err(reason) => {
                        let row = if id.is_empty() { sku.sku_code } else { id };
                        sheet.reject(format!("{region} {row}"), reason);
                    }
                }
            }
            match page.next_page_token.filter(|next| !next.is_empty()) {
                Some(next) => token = next,
                None => return Ok(list),
            }
        }
    }

    async fn stock(&self, region: &str, spot: bool) -> Result<ZoneStock> {
        const CALL: &str = "DescribeAvailableResource";
        let mut query = vec![
            ("RegionId", region),
            ("DestinationResource", "InstanceType"),
            ("ResourceType", "instance"),
            ("InstanceChargeType", "PostPaid"),
            ("IoOptimized", "optimized"),
        ];
        if spot {
            query.push(("SpotStrategy", "SpotAsPriceGo"));
        }
        let host = ecs_host(region);
        let answer: Resources = self.source.call(&self.session, &host, ECS, CALL, &query).await?;
        map::stock(answer).map_err(|reason| self.session.malformed(CALL, reason))
    }

    /// The account's prices of what is sold in the region.
    async fn own_prices(&self, region: &str, facts: &mut RegionFacts, sheet: &mut SheetBuilder) {
        let sold: BTreeSet<&String> = match &facts.stock {
            Some(zones) => zones.values().flat_map(BTreeMap::keys).collect(),
            None => facts.list.keys().collect(),
        };
        let ids: Vec<String> =
            sold.into_iter().filter(|id| self.types.contains_key(*id)).cloned().collect();
        for id in ids {
            match self.own_price(region, &id).await {
                Ok(Some(own)) => {
                    facts.own.insert(id, own);
                }
                Ok(None) => {}
                Err(error) => sheet.failed(format!("account price of {id} in {region}"), &error),
            }
        }
    }

    async fn own_price(&self, region: &str, id: &str) -> Result<Option<map::Own>> {
        const CALL: &str = "DescribePrice";
        let host = ecs_host(region);
        let mut query = vec![
            ("RegionId", region),
            ("ResourceType", "instance"),
            ("InstanceType", id),
            ("PriceUnit", "Hour"),
        ];
        let mut answer: Result<PriceAnswer> =
            self.source.call(&self.session, &host, ECS, CALL, &query).await;
        // Newer types refuse the default kind of system disk; the machine's part is not changed by it.
        if says(&answer, "InvalidSystemDiskCategory") {
            query.push(("SystemDisk.Category", "cloud_essd"));
            answer = self.source.call(&self.session, &host, ECS, CALL, &query).await;
        }
        if says(&answer, "InvalidInstanceType.ValueNotSupported") {
            // Not sold there: no price, and no failure.
            return Ok(None);
        }
        map::own(&answer?.price_info.price, self.source.site().currency())
            .map(Some)
            .map_err(|reason| self.session.malformed(CALL, reason))
    }

    /// The latest spot prices of every type that has spot stock in the region.
    async fn spot(
        &self,
        region: &str,
        stock: &ZoneStock,
        facts: &mut RegionFacts,
        sheet: &mut SheetBuilder,
    ) {
        let ids: BTreeSet<&String> = stock
            .values()
            .flat_map(|types| types.iter().filter(|(_, stock)| **stock != Stock::SoldOut))
            .map(|(id, _)| id)
            .filter(|id| self.types.contains_key(*id))
            .collect();
        for id in ids {
            if let Err(error) = self.spot_of(region, id, facts, sheet).await {
                sheet.failed(format!("spot price of {id} in {region}"), &error);
            }
        }
    }

    async fn spot_of(
        &self,
        region: &str,
        id: &str,
        facts: &mut RegionFacts,
        sheet: &mut SheetBuilder,
    ) -> Result<()> {
        const CALL: &str = "DescribeSpotPriceHistory";
        let host = ecs_host(region);
        let mut pages = Pages::at_most(50);
        let mut offset = "0".to_owned();
        loop {
            pages.turn_to(&offset).map_err(|reason| self.session.malformed(CALL, reason))?;
            let query = [
                ("RegionId", region),
                ("NetworkType", "vpc"),
                ("OSType", "linux"),
                ("InstanceType", id),
                ("Offset", &offset),
            ];
            let page: SpotHistory =
                self.source.call(&self.session, &host, ECS, CALL, &query).await?;
            let rows = page.spot_prices.spot_price_type;
            let none = rows.is_empty();
            for row in rows {
                let Some(row) = sheet.read(row) else { continue };
                if row.instance_type != id {
                    sheet.reject(
                        row.instance_type,
                        format!("a spot price where {id} was asked for"),
                    );
                    continue;
                }
                let currency = self.source.site().currency();
                let name = format!("{region} {id} (spot)");
                if let Err(reason) =
                    map::spot(row, page.currency.as_deref(), currency, &mut facts.spot)
                {
                    sheet.reject(name, reason);
                }
            }
            match page.next_offset.as_ref().and_then(whole).filter(|next| *next > 0 && !none) {
                Some(next) => offset = next.to_string(),
                None => return Ok(()),
            }
        }
    }
}

/// Whether the provider refused with a code that begins so.
fn says<T>(answer: &Result<T>, code: &str) -> bool {
    let refused = |error: &ProviderError| {
        let cause = error.source.as_ref()?.downcast_ref::<Failure>()?;
        match cause {
            Failure::Refused { code: said, .. } => Some(said.starts_with(code)),
            _ => None,
        }
    };
    answer.as_ref().err().and_then(refused).unwrap_or(false)
}
