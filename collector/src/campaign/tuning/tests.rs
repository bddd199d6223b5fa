//! Searches through the loop of a campaign, on made-up times.
