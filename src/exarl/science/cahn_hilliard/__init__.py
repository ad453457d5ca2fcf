"""ExaCH-v0 and ExaCH3D-v0: self-assembly of block copolymers, steered by temperature."""
