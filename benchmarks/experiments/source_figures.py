"""Figures that the sources printed, to stand beside ours; latencies in microseconds.

None is comparable as it stands: the sources had a machine per router and a local network; here all
processes share one machine's processors and its loopback.
"""

from __future__ import annotations

NOT_COMPARABLE_S0 = (
    "source: a Java router per machine (dual 2.8 GHz Xeon, 1 Gb/s network), two edge routers more; "
    "here: all processes share this machine's loopback and processors"
)
NOT_COMPARABLE_S3 = (
    "source: an unoptimised C router per machine (1.5 GHz Pentium 4, 100 Mb/s network); "
    "here: all processes share this machine's loopback and processors"
)

# S0 Tab 8.12: load variables -> mean for 1 … 7 routers.
S0_HOPS_MEAN_US = {
    40: (644, 986, 1371, 1706, 2083, 2518, 2823),
    80: (652, 1101, 1489, 1831, 2263, 2708, 3149),
    120: (677, 1154, 1559, 1999, 2397, 2867, 3361),
    160: (696, 1235, 1754, 2273, 2730, 3476, 3890),
}

# S0 Tab 8.14: load variables -> average increment of the mean per added router.
S0_HOPS_INCREMENT_US = {40: 360, 80: 416, 120: 447, 160: 532}

# S3 Fig 5.18: load variables -> mean for 1 … 4 routers.
S3_HOPS_MEAN_US = {
    0: (152.16, 251.72, 340.28, 448.42),
    40: (173.15, 261.58, 353.62, 447.45),
    80: (168.68, 270.34, 358.09, 460.32),
    120: (178.05, 269.42, 366.89, 475.37),
}

# S0 Tab 8.21: load variables -> mean for 1 … 4 routers, each feeding a load subscriber.
S0_MULTICAST_MEAN_US = {
    20: (656, 955, 1168, 1366),
    40: (666, 1020, 1347, 1616),
    80: (693, 1060, 2114, 3516),
    120: (681, 1124, 4042, 6476),
}

# S0 §8.5: load variables -> throughput at the subscribers in events/ms for 1 … 4 routers.
S0_MULTICAST_RECEIVED_PER_MS = {
    20: (9.389, 18.783, 28.262, 37.373),
    40: (17.838, 35.391, 53.136, 70.132),
    80: (31.271, 62.707, 93.251, 122.962),
    120: (41.137, 81.817, 118.009, 153.001),
}

# S3 Fig 5.24: load variables -> mean through 4 routers with fan-out 2.
S3_MULTICAST_MEAN_US = {0: 448.48, 120: 648.13}

# S0 Tabs 8.28-8.32: (load variables, halved subscribers) -> mean, throughput, its prediction.
S0_FILTER = {
    (40, 0): (1616, 70.132, 70.203),
    (40, 1): (1674, 61.847, 61.696),
    (40, 2): (1558, 53.69, 53.296),
    (40, 3): (1544, 44.565, 44.172),
    (40, 4): (1466, 34.876, 35.287),
    (80, 0): (3516, 122.962, 125.635),
    (80, 1): (3347, 107.822, 110.049),
    (80, 2): (2713, 92.605, 94.066),
    (80, 3): (2267, 78.067, 78.372),
    (80, 4): (1780, 61.9, 62.401),
}

# S3 Fig 5.27: thousand forwards a second -> mean, largest, CPU per cent of the C router.
S3_THROUGHPUT = {
    1: (158.89, 790, 3.2),
    2: (173.28, 813, 6.7),
    3: (178.28, 792, 11.3),
    4: (186.49, 1106, 15.4),
    5: (197.87, 1153, 19.8),
    6: (207.39, 1200, 24.5),
    7: (223.21, 1212, 28.8),
    8: (236.34, 1193, 33.7),
    9: (259.18, 1196, 38.3),
    10: (283.52, 1303, 41.2),
    11: (328.73, 1573, 47.6),
    12: (367.26, 1890, 51.7),
    13: (392.15, 2200, 55.1),
    14: (410.34, 2183, 60.8),
    15: (453.23, 2217, 65.7),
    16: (476.72, 2274, 69.2),
}

S3_THROUGHPUT_MEASURED_PER_S = 16_000

# S0 Tab 8.1 (two routers) and S3 Fig 5.7 (one router): the lower bound without load.
S0_LOWER_BOUND_MEAN_US = 419
S0_LOWER_BOUND_SD_US = 79
S3_BASE_MEAN_US = 152
S3_BASE_MIN_US = 128
S3_BASE_MAX_US = 1_042
S3_BASE_SD_US = 25.64
S3_BASE_LOCAL_MEAN_US = 24
S3_BASE_MANAGED_MEAN_US = 260
"""The same way through the router in Java."""

# S3 Fig 5.4, the C router: latency -> number of samples that took no longer.
S3_BASE_SAMPLES = 250_000
S3_BASE_WITHIN_US = {200: 241_260, 400: 249_755, 500: 249_900, 1_000: 249_984, 1_100: 250_000}

# S0 Tabs 8.7-8.9: load variables -> mean of reference pair 0 through one router.
S0_LOAD_MEAN_US = {
    0: 749,
    10: 654,
    20: 697,
    40: 672,
    80: 672,
    120: 672,
    160: 672,
    200: 678,
    240: 700,
}

# S3 Fig 5.14: load variables -> mean through one router.
S3_LOAD_MEAN_US = {0: 166.21, 60: 166.16, 120: 165.82, 180: 167.32}
