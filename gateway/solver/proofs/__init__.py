"""That a safe set holds whatever happens, proved before anything is armed."""
