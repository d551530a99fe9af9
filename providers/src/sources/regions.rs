//! Regions that are read one after another.

use runwhere_model::{OfferScope, OfferSheet, ProviderError};

use super::sheet::SheetBuilder;
use crate::provider::Result;

/// The regions to read: the scope's, else the settings'; none = all that there are.
pub fn wanted<'a>(scope: &'a OfferScope, settings: &'a [String]) -> &'a [String] {
    if scope.regions.is_empty() { settings } else { &scope.regions }
}

/// How the regions of one reading went: one that fails is a gap of the sheet; where all fail, the reading does.
#[derive(Debug, Default)]
pub struct RegionsRead {
    one: bool,
    failure: Option<ProviderError>,
}

impl RegionsRead {
    /// What was read of a region; its failure is noted in the sheet.
    pub fn note<T>(
        &mut self,
        region: &str,
        read: Result<T>,
        sheet: &mut SheetBuilder,
    ) -> Option<T> {
        match read {
            Ok(read) => {
                self.one = true;
                Some(read)
            }
            Err(error) => {
                sheet.failed(region, &error);
                self.failure = Some(error);
                None
            }
        }
    }

    /// The sheet, or the last failure where no region could be read.
    pub fn finish(self, sheet: SheetBuilder) -> Result<OfferSheet> {
        match self.failure {
            Some(error) if !self.one => Err(error),
            _ => Ok(sheet.finish()),
        }
    }
}
