//! Values by the ID of a thread or CPU: two loads instead of a hash.

use hashbrown::HashMap;

/// Number of IDs of a page.
const PAGE: usize = 256;

/// IDs from here on, which only damaged traces have, are hashed: Linux has at most 4,194,304 (`PID_MAX_LIMIT`).
const DIRECT: usize = 1 << 22;

/// A map from IDs. Pages are allocated where there are IDs, so that a few high ones take little memory.
#[derive(Debug)]
pub(super) struct IdMap<T> {
    pages: Vec<Option<Box<[Option<T>; PAGE]>>>,
    others: HashMap<i32, T>,
}

impl<T: Copy> IdMap<T> {
    pub(super) fn new() -> IdMap<T> {
        IdMap {
            pages: Vec::new(),
            others: HashMap::new(),
        }
    }

    #[inline]
    pub(super) fn get(&self, id: i32) -> Option<T> {
        match direct(id) {
            Some(id) => self.pages.get(id / PAGE)?.as_ref()?[id % PAGE],
            None => self.others.get(&id).copied(),
        }
    }

    /// Returns the value before.
    #[inline]
    pub(super) fn insert(&mut self, id: i32, value: T) -> Option<T> {
        let Some(id) = direct(id) else {
            return self.others.insert(id, value);
        };
        match self.pages.get_mut(id / PAGE) {
            Some(Some(page)) => page[id % PAGE].replace(value),
            _ => {
                self.add_page(id / PAGE)[id % PAGE] = Some(value);
                None
            }
        }
    }

    #[cold]
    fn add_page(&mut self, page: usize) -> &mut [Option<T>; PAGE] {
        if self.pages.len() <= page {
            self.pages.resize_with(page + 1, || None);
        }
        self.pages[page].get_or_insert_with(|| Box::new([None; PAGE]))
    }

    pub(super) fn remove(&mut self, id: i32) {
        match direct(id) {
            Some(id) => {
                if let Some(Some(page)) = self.pages.get_mut(id / PAGE) {
                    page[id % PAGE] = None;
                }
            }
            None => {
                self.others.remove(&id);
            }
        }
    }

    /// The values, in the order of their IDs unless these are hashed.
    pub(super) fn iter(&self) -> impl Iterator<Item = (i32, T)> {
        let pages = self.pages.iter().enumerate();
        let direct = pages.flat_map(|(number, page)| {
            let values = page.iter().flat_map(|page| page.iter()).enumerate();
            values
                .filter_map(move |(place, value)| Some(((number * PAGE + place) as i32, (*value)?)))
        });
        direct.chain(self.others.iter().map(|(&id, &value)| (id, value)))
    }

    pub(super) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let pages = self.pages.iter_mut().flatten();
        let direct = pages.flat_map(|page| page.iter_mut().flatten());
        direct.chain(self.others.values_mut())
    }

    /// Size in bytes.
    pub(super) fn bytes(&self) -> usize {
        let pages = self.pages.iter().flatten().count() * size_of::<[Option<T>; PAGE]>();
        self.pages.capacity() * size_of::<usize>()
            + pages
            + self.others.capacity() * 2 * size_of::<(i32, T)>()
    }
}

#[inline]
fn direct(id: i32) -> Option<usize> {
    usize::try_from(id).ok().filter(|&id| id < DIRECT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_any_size_have_values() {
        let mut map = IdMap::new();
        let ids = [7, 0, 255, 256, 4_194_303, 4_194_304, i32::MAX, -1, i32::MIN];
        for (value, id) in ids.into_iter().enumerate() {
            assert_eq!(map.get(id), None);
            assert_eq!(map.insert(id, value), None);
        }
        assert_eq!(map.insert(256, 20), Some(3));
        assert_eq!(map.get(256), Some(20));
        assert_eq!(map.get(257), None);
        let mut all: Vec<i32> = map.iter().map(|(id, _)| id).collect();
        assert_eq!(all[..5], [0, 7, 255, 256, 4_194_303]);
        all.sort_unstable();
        assert_eq!(all.len(), ids.len());
        for value in map.values_mut() {
            *value += 100;
        }
        for (value, id) in ids.into_iter().enumerate() {
            assert_eq!(map.get(id), Some(if id == 256 { 120 } else { value + 100 }));
            map.remove(id);
            assert_eq!(map.get(id), None);
        }
        assert_eq!(map.iter().count(), 0);
    }

    #[test]
    fn a_high_id_takes_one_page() {
        let mut map = IdMap::new();
        map.insert(4_000_000, 1_usize);
        assert!(map.bytes() < 512 << 10, "{}", map.bytes());
    }
}
