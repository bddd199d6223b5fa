//! Schedules that compute less than is counted.

use super::table::Record;

impl Record {
    /// Whether its schedule saves some of the products that are counted, as Winograd's do: then its rate of operations says
    /// nothing of what a host can do, and may be above any peak.
    pub fn saves_products(&self) -> bool {
        /// Winograd's products, and sums by taps, which leave out what is padding.
        const SAVING: [&str; 2] = [r#""algorithm":"winograd"#, r#""order":"kernel_first""#];
        let text = self.schedule.as_ref().map_or("", |schedule| schedule.text());
        SAVING.iter().any(|saving| text.contains(saving))
    }
}
