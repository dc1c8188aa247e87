-- Which process pushes to which consumer.

-- name: get_push_node
SELECT leaving FROM push_node WHERE node = :node;

-- name: put_push_node
INSERT INTO push_node (node, expires_us, leaving) VALUES (:node, :expires, :leaving)
ON CONFLICT (node) DO UPDATE SET expires_us = excluded.expires_us, leaving = excluded.leaving;

-- name: forget_push_nodes
DELETE FROM push_node WHERE expires_us <= :now;

-- name: list_push_nodes
SELECT node, leaving FROM push_node;

-- name: get_push_lane
SELECT node FROM push_lane WHERE consumer_seq = :consumer_seq;

-- name: drop_push_node
DELETE FROM push_node WHERE node = :node;

-- name: drop_all_push_lanes
DELETE FROM push_lane WHERE node = :node;
