//! The placement as a game: costs of an assignment, the cost of each operator in it, and best-response moves.

use super::exact::Exact;
use super::{Edge, Instance, Placement, bound};
use crate::Result;

pub(super) struct Game<'a> {
    pub instance: &'a Instance,
    /// Order in which list scheduling considers operators: longest remaining path first.
    order: Vec<usize>,
    reads: Vec<Vec<Edge>>,
}

/// Maximum number of best-response moves, as a safeguard; searches do not reach it.
const MOVES_MOST: usize = 10_000;

impl<'a> Game<'a> {
    pub fn from_instance(instance: &'a Instance) -> Result<Game<'a>> {
        let topological = instance.check_instance()?;
        let mut reads = vec![Vec::new(); instance.times_ns.len()];
        for edge in &instance.edges {
            reads[edge.to].push(*edge);
        }
        let order = by_rank(instance, topological);
        Ok(Game { instance, order, reads })
    }

    #[cfg(test)]
    pub fn with_times<'b>(&self, instance: &'b Instance) -> Game<'b> {
        Game { instance, order: self.order.clone(), reads: self.reads.clone() }
    }

    pub fn is_graph(&self) -> bool {
        !self.instance.edges.is_empty()
    }

    fn time_on(&self, operator: usize, device: usize) -> f64 {
        self.instance.times_ns[operator][device]
    }

    pub fn energy_on(&self, operator: usize, device: usize) -> f64 {
        self.instance.energies_j.get(operator).map_or(0.0, |energies| energies[device])
    }

    fn total_energy(&self, devices: &[usize]) -> f64 {
        devices.iter().enumerate().map(|(operator, &device)| self.energy_on(operator, device)).sum()
    }

    pub fn device_loads(&self, devices: &[usize]) -> Vec<f64> {
        let mut loads = vec![0.0; self.instance.device_count()];
        for (operator, &device) in devices.iter().enumerate() {
            loads[device] += self.time_on(operator, device);
        }
        loads
    }

    pub fn makespan(&self, devices: &[usize]) -> f64 {
        if !self.is_graph() {
            return self.device_loads(devices).into_iter().fold(0.0, f64::max);
        }
        self.finish_times(devices).into_iter().fold(0.0, f64::max)
    }

    /// Returns the end of each operator if devices run operators in list-scheduling order.
    fn finish_times(&self, devices: &[usize]) -> Vec<f64> {
        let mut free = vec![0.0f64; self.instance.device_count()];
        let mut ends = vec![0.0f64; devices.len()];
        for &operator in &self.order {
            let device = devices[operator];
            let arrives = |edge: &Edge| ends[edge.from] + self.transfer_time(devices[edge.from], device, edge.bytes);
            let ready = self.reads[operator].iter().map(arrives).fold(free[device], f64::max);
            ends[operator] = ready + self.time_on(operator, device);
            free[device] = ends[operator];
        }
        ends
    }

    fn transfer_time(&self, from: usize, to: usize, bytes: f64) -> f64 {
        match self.instance.links.get(from).map(|links| links[to]) {
            Some(link) if from != to => link.latency_ns + bytes * link.ns_per_byte,
            _ => 0.0,
        }
    }

    pub fn objective(&self, devices: &[usize]) -> f64 {
        self.makespan(devices) + self.instance.price_ns_per_j * self.total_energy(devices)
    }

    pub fn unilateral_costs(&self, devices: &[usize]) -> Vec<Vec<f64>> {
        let loads = self.device_loads(devices);
        let mut moved = devices.to_vec();
        let mut costs = |operator: usize| {
            let own = devices[operator];
            let mut pay = |device: usize| {
                if self.is_graph() {
                    moved[operator] = device;
                    let pay = self.objective(&moved);
                    moved[operator] = own;
                    return pay;
                }
                let joins = if device == own { 0.0 } else { self.time_on(operator, device) };
                loads[device] + joins + self.instance.price_ns_per_j * self.energy_on(operator, device)
            };
            (0..loads.len()).map(&mut pay).collect()
        };
        (0..devices.len()).map(&mut costs).collect()
    }

    /// Returns the change of the objective if an operator moves alone, by operator and device, given the costs of all
    /// unilateral moves.
    fn objective_changes(&self, devices: &[usize], pays: &[Vec<f64>]) -> Vec<Vec<f64>> {
        if self.is_graph() {
            let changes = |(pays, own): (&Vec<f64>, &usize)| pays.iter().map(|pay| pay - pays[*own]).collect();
            return pays.iter().zip(devices).map(changes).collect();
        }
        let (loads, makespan) = (self.device_loads(devices), self.makespan(devices));
        let change = |operator: usize, to: usize| {
            let (own, mut moved) = (devices[operator], loads.clone());
            moved[own] -= self.time_on(operator, own);
            moved[to] += self.time_on(operator, to);
            let energy = self.energy_on(operator, to) - self.energy_on(operator, own);
            moved.into_iter().fold(0.0, f64::max) - makespan + self.instance.price_ns_per_j * energy
        };
        (0..devices.len()).map(|operator| (0..loads.len()).map(|to| change(operator, to)).collect()).collect()
    }

    pub fn largest_gain(pays: &[Vec<f64>], devices: &[usize]) -> (f64, usize, usize) {
        let mut most = (f64::NEG_INFINITY, 0, devices[0]);
        for (operator, pays) in pays.iter().enumerate() {
            for (device, pay) in pays.iter().enumerate().filter(|(device, _)| *device != devices[operator]) {
                let gain = pays[devices[operator]] - pay;
                if gain > most.0 {
                    most = (gain, operator, device);
                }
            }
        }
        if most.0 == f64::NEG_INFINITY { (0.0, 0, devices[0]) } else { most }
    }

    /// Repeats the unilateral move with the largest gain until none gains (an equilibrium) or the objective would rise.
    pub fn settle_moves(&self, mut devices: Vec<usize>, exact: Option<&Exact>) -> Placement {
        for _ in 0..MOVES_MOST {
            let (gain, operator, device) = Game::largest_gain(&self.unilateral_costs(&devices), &devices);
            let before = self.objective(&devices);
            if gain <= before.abs() * 1e-12 {
                break;
            }
            let own = std::mem::replace(&mut devices[operator], device);
            if self.objective(&devices) > before * (1.0 + 1e-12) {
                devices[operator] = own;
                break;
            }
        }
        let pays_ns = self.unilateral_costs(&devices);
        let objective_ns = self.objective(&devices);
        let least_ns = exact.map_or_else(|| bound::lower_bound(self), |exact| exact.least_ns).min(objective_ns);
        // Exhaustive search uses the list order, so its optimum is a lower bound for other orders only without edges.
        let least_in_any_order_ns =
            if self.is_graph() && exact.is_some() { bound::lower_bound(self).min(least_ns) } else { least_ns };
        let (count, times) = (self.instance.device_count(), &self.instance.times_ns);
        let is_alike = times.iter().all(|times| times.iter().all(|time| *time == times[0]));
        let is_plain = !self.is_graph() && self.instance.price_ns_per_j == 0.0;
        Placement {
            makespan_ns: self.makespan(&devices),
            ends_ns: self.finish_times(&devices),
            energy_j: self.total_energy(&devices),
            objective_ns,
            largest_gain_ns: Game::largest_gain(&pays_ns, &devices).0,
            objective_changes_ns: self.objective_changes(&devices, &pays_ns),
            pays_ns,
            least_ns,
            least_in_any_order_ns,
            is_exact: exact.is_some(),
            anarchy: exact.and_then(|exact| exact.anarchy),
            anarchy_most: (is_alike && is_plain).then(|| 2.0 - 2.0 / (count as f64 + 1.0)),
            devices,
        }
    }
}

fn by_rank(instance: &Instance, topological: Vec<usize>) -> Vec<usize> {
    let mean = |operator: usize| instance.times_ns[operator].iter().sum::<f64>() / instance.device_count() as f64;
    let mut ranks = vec![0.0f64; topological.len()];
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); topological.len()];
    for edge in &instance.edges {
        after[edge.from].push(edge.to);
    }
    for &operator in topological.iter().rev() {
        ranks[operator] = mean(operator) + after[operator].iter().map(|&next| ranks[next]).fold(0.0, f64::max);
    }
    let mut order = topological;
    // Times are positive, so successors have a lower rank.
    order.sort_by(|&one, &other| ranks[other].total_cmp(&ranks[one]));
    order
}
