"""The wire: what enters, leaves and is stored, as strict models; no I/O and no clock."""
