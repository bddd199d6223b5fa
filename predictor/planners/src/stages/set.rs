//! A set of operators of one part of the graph, as a bit mask.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Set(pub u128);

impl Set {
    pub const MOST: usize = 128;

    pub fn has_place(self, place: usize) -> bool {
        self.0 >> place & 1 == 1
    }

    pub fn with_place(self, place: usize) -> Set {
        Set(self.0 | 1 << place)
    }

    pub fn union_with(self, other: Set) -> Set {
        Set(self.0 | other.0)
    }

    pub fn is_in(self, other: Set) -> bool {
        self.0 & !other.0 == 0
    }

    pub fn intersects_with(self, other: Set) -> bool {
        self.0 & other.0 != 0
    }

    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    pub fn first_place(self) -> usize {
        self.0.trailing_zeros() as usize
    }

    pub fn iter_places(self) -> impl Iterator<Item = usize> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let place = (rest != 0).then(|| rest.trailing_zeros() as usize)?;
            rest &= rest - 1;
            Some(place)
        })
    }
}
