//! Max-min fair allocation of one resource.

/// Returns the max-min fair allocation: no demand is exceeded, and capacity is left only if all demands are met.
pub fn max_min(wanted: &[f64], capacity: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&one, &other| wanted[one].total_cmp(&wanted[other]));
    let (mut rest, mut shares) = (capacity, vec![0.0; wanted.len()]);
    for (place, &one) in order.iter().enumerate() {
        let fair = rest / (order.len() - place) as f64;
        shares[one] = wanted[one].min(fair);
        rest -= shares[one];
    }
    shares
}
