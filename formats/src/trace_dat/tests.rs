//! Golden files, whole and damaged; files made here for what no recorder at hand writes; random damage.
